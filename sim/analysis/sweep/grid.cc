#include "sim/analysis/sweep/grid.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/config/flags.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

const ConfigFlag* FlagOfPath(absl::string_view path) {
  for (const ConfigFlag& flag : ConfigFlags()) {
    if (flag.path == path) return &flag;
  }
  return nullptr;
}

// What a printed quantity has after its number ("0.001 s"), in the form that
// CellOfValue reads.
SweepCell CellOfPrinted(absl::string_view text) {
  if (absl::ConsumeSuffix(&text, " B/s")) return CellOfValue(text);
  if (absl::ConsumeSuffix(&text, " s") || absl::ConsumeSuffix(&text, " B")) {
    return CellOfValue(text);
  }
  return CellOfValue(text);
}

// "all" of schedules is each of them.
void AddValue(const std::string& value, SweepAxis* axis) {
  if (axis->names[0] != "schedule.name" || value != "all") {
    axis->values.push_back({value});
    return;
  }
  for (const ScheduleInfo* info : AllSchedules()) {
    axis->values.push_back({info->name});
  }
}

}  // namespace

std::string ToString(const SweepShard& shard) {
  return absl::StrCat(shard.number, "/", shard.count);
}

std::string SweepAxis::Name() const { return absl::StrJoin(names, ","); }

absl::Status CheckGrid(const SweepGrid& grid) {
  std::set<std::string> before;
  std::set<std::string> all;
  for (const SweepAxis& axis : grid.axes) {
    for (const std::string& name : axis.names) {
      if (all.insert(name).second) continue;
      return Prefix(axis.place,
                    AboutField(name, absl::InvalidArgumentError(absl::StrCat(
                                         "axis ", name, " is given twice; ",
                                         "allowed: each field once"))));
    }
  }
  for (const SweepAxis& axis : grid.axes) {
    if (axis.when) {
      for (const std::string& field : axis.when->fields()) {
        if (all.count(field) == 0 || before.count(field) > 0) continue;
        return Prefix(
            axis.place,
            AboutField(axis.Name(),
                       absl::InvalidArgumentError(absl::StrCat(
                           "axis ", axis.Name(), ": when ", axis.when->text(),
                           ": ", field, " is a later axis; allowed: fields of ",
                           "earlier axes and of the base"))));
      }
    }
    before.insert(axis.names.begin(), axis.names.end());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ConfigEdit>> EditsOf(const SweepAxis& axis,
                                                int32_t choice) {
  std::vector<ConfigEdit> edits;
  for (size_t index = 0; index < axis.names.size(); ++index) {
    const std::string& path = axis.names[index];
    const std::string& given = axis.values[choice][index];
    const std::string value = ValueInFolder(path, given, axis.folder);
    const std::string origin = absl::StrCat("axis ", path, "=", given);
    // A flag's value may stand for another path: a file for a name.
    const ConfigFlag* flag = FlagOfPath(path);
    if (flag != nullptr && !flag->repeats && flag->is_other != nullptr) {
      PW_ASSIGN_OR_RETURN(ConfigEdit edit, EditOfFlag(*flag, value));
      edit.origin = origin;
      edits.push_back(std::move(edit));
      continue;
    }
    edits.push_back({.path = path, .value = value, .origin = origin});
  }
  return edits;
}

SweepCell CellOfField(const RunConfig& config, absl::string_view path) {
  const std::string text = ToString(config);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, absl::StrCat(path, ": "))) {
      return CellOfPrinted(line);
    }
  }
  return SweepCell();
}

GridWalk::GridWalk(const SweepGrid* grid, const RunConfig& base)
    : grid_(grid), filters_(grid->axes.size() + 1) {
  for (const SweepAxis& axis : grid->axes) {
    auto& of_axis = cells_.emplace_back();
    for (const std::vector<std::string>& values : axis.values) {
      auto& of_choice = of_axis.emplace_back();
      for (const std::string& value : values) {
        of_choice.push_back(CellOfValue(value));
      }
    }
    when_.emplace_back();
    if (axis.when) when_.back() = Bind(*axis.when, base);
  }
  for (const SweepFilter& filter : grid->filters) {
    Condition condition = Bind(filter.keep, base);
    filters_[condition.last_axis + 1].push_back(std::move(condition));
  }
  choices_.assign(grid->axes.size(), -1);
}

GridWalk::Condition GridWalk::Bind(const Expression& expression,
                                   const RunConfig& base) const {
  Condition condition = {.expression = &expression};
  for (const std::string& field : expression.fields()) {
    Source source;
    source.base = CellOfField(base, field);
    for (size_t axis = 0; axis < grid_->axes.size(); ++axis) {
      const std::vector<std::string>& names = grid_->axes[axis].names;
      const auto found = std::find(names.begin(), names.end(), field);
      if (found == names.end()) continue;
      source.axis = static_cast<int>(axis);
      source.name = static_cast<int>(found - names.begin());
    }
    condition.last_axis = std::max(condition.last_axis, source.axis);
    condition.sources.push_back(std::move(source));
  }
  return condition;
}

bool GridWalk::Holds(const Condition& condition) const {
  return condition.expression->IsTrue([&](size_t field) -> SweepCell {
    const Source& source = condition.sources[field];
    const int choice = source.axis < 0 ? -1 : choices_[source.axis];
    return choice < 0 ? source.base : cells_[source.axis][choice][source.name];
  });
}

bool GridWalk::Passes(int level) const {
  const std::vector<Condition>& filters = filters_[level + 1];
  return std::all_of(
      filters.begin(), filters.end(),
      [this](const Condition& condition) { return Holds(condition); });
}

bool GridWalk::Next() {
  if (ended_) return false;
  ++place_;
  return Step();
}

bool GridWalk::NextOfShard() {
  const SweepShard& shard = grid_->shard;
  while (Next()) {
    if (place_ % shard.count == shard.number - 1) return true;
  }
  return false;
}

bool GridWalk::Step() {
  const int levels = static_cast<int>(grid_->axes.size());
  int level = started_ ? levels - 1 : 0;
  bool enters = !started_;
  if (!started_ && (!Passes(-1) || levels == 0)) {
    ended_ = true;
    started_ = true;
    return levels == 0 && Passes(-1);
  }
  started_ = true;
  while (level >= 0) {
    if (enters) {
      choices_[level] = !when_[level] || Holds(*when_[level]) ? 0 : -1;
    } else if (choices_[level] < 0 ||
               ++choices_[level] >=
                   static_cast<int>(grid_->axes[level].values.size())) {
      --level;
      continue;
    }
    enters = false;
    if (!Passes(level)) continue;
    if (level == levels - 1) return true;
    ++level;
    enters = true;
  }
  ended_ = true;
  return false;
}

// Axes as they are written: on the command line and in files.

namespace {

using Values = std::vector<std::string>;

constexpr size_t kMostValues = 1'000'000;

std::string Strip(absl::string_view text) {
  return std::string(absl::StripAsciiWhitespace(text));
}

// The path of a field that is named by its path or its flag.
absl::StatusOr<std::string> PathOfAxis(const std::string& name) {
  absl::string_view bare = name;
  const bool dashes = absl::ConsumePrefix(&bare, "--");
  const std::vector<std::string> paths = ConfigPaths();
  if (!dashes) {
    for (const std::string& path : paths) {
      if (path == name || (absl::EndsWith(path, ".params") &&
                           absl::StartsWith(name, path + "."))) {
        return name;
      }
    }
  }
  Values known = paths;
  for (const ConfigFlag& flag : ConfigFlags()) {
    if (flag.repeats) continue;
    if (flag.flag.substr(2) == bare) return flag.path;
    known.push_back(dashes ? flag.flag : flag.flag.substr(2));
  }
  const std::string nearest = NearestName(name, known);
  return AboutField(
      name, WithValue(absl::InvalidArgumentError(absl::StrCat(
                          "axis ", name, ": no field and no flag has that name",
                          nearest.empty()
                              ? ""
                              : absl::StrCat("; did you mean '", nearest, "'?"),
                          "; allowed: pipewright list fields")),
                      name, "pipewright list fields"));
}

absl::Status BadAxis(const std::string& axis, absl::string_view value,
                     absl::string_view allowed) {
  return AboutField(axis,
                    BadValue(absl::StrCat("axis ", axis), value, allowed));
}

struct Amount {
  double number = 0;
  std::string unit;

  std::string Text(double value) const {
    // Steps add up without their rounding.
    return absl::StrFormat("%.12g%s", value, unit);
  }
};

absl::StatusOr<Amount> AmountOf(const std::string& axis,
                                const std::string& text) {
  size_t end = text.size();
  while (end > 0 && absl::ascii_isalpha(text[end - 1])) --end;
  Amount amount;
  amount.unit = text.substr(end);
  const std::string number = Strip(text.substr(0, end));
  if (!absl::SimpleAtod(number, &amount.number) ||
      !std::isfinite(amount.number)) {
    return BadAxis(axis, text, "a number, with or without a unit");
  }
  return amount;
}

// From `from` to `to`, both taken, by adding or multiplying.
absl::StatusOr<Values> RangeOfTexts(const std::string& axis,
                                    const std::string& from,
                                    const std::string& to,
                                    const std::string& step, bool multiplies) {
  PW_ASSIGN_OR_RETURN(const Amount first, AmountOf(axis, from));
  PW_ASSIGN_OR_RETURN(const Amount last, AmountOf(axis, to));
  PW_ASSIGN_OR_RETURN(const Amount by, AmountOf(axis, step));
  const bool alike =
      first.unit == last.unit &&
      (multiplies ? by.unit.empty() : by.unit == first.unit || by.unit.empty());
  const std::string text =
      absl::StrCat(from, "..", to, multiplies ? "*" : "+", step);
  if (!alike) return BadAxis(axis, text, "a range in one unit");
  if (multiplies ? !(by.number > 1 && first.number > 0) : !(by.number > 0)) {
    return BadAxis(axis, text,
                   multiplies ? "a factor above 1, from a number above 0"
                              : "a step above 0");
  }
  if (first.number > last.number) {
    return BadAxis(axis, text, "a range that rises");
  }
  Values values;
  // The end is met in spite of rounding.
  const double end = last.number + 1e-9 * std::abs(last.number);
  double value = first.number;
  for (size_t index = 0; value <= end; ++index) {
    if (index >= kMostValues) {
      return BadAxis(axis, text,
                     absl::StrCat("at most ", kMostValues, " values"));
    }
    values.push_back(first.Text(value));
    value = multiplies
                ? value * by.number
                : first.number + static_cast<double>(index + 1) * by.number;
  }
  return values;
}

// "1..8", "1..64*2", "1ms..5ms+1ms"; nothing for another text.
absl::StatusOr<Values> ValuesOfWord(const std::string& axis,
                                    const std::string& word) {
  const size_t dots = word.find("..");
  double number = 0;
  // A path may have dots too; a range begins with a number.
  if (dots == std::string::npos || dots == 0 || !absl::ascii_isdigit(word[0]) ||
      absl::SimpleAtod(word, &number)) {
    return Values{word};
  }
  const std::string from = word.substr(0, dots);
  std::string to = word.substr(dots + 2);
  const size_t sign = to.find_first_of("*+");
  if (sign == std::string::npos) {
    return RangeOfTexts(axis, from, to, "1", false);
  }
  const bool multiplies = to[sign] == '*';
  const std::string step = to.substr(sign + 1);
  to.resize(sign);
  return RangeOfTexts(axis, Strip(from), Strip(to), Strip(step), multiplies);
}

// Parts between commas that stand in no brackets; the brackets are taken off.
absl::StatusOr<Values> SplitList(const std::string& axis,
                                 const std::string& text) {
  Values words;
  std::string word;
  int depth = 0;
  for (const char letter : text) {
    if (letter == '[' && depth++ == 0) continue;
    if (letter == ']' && --depth == 0) continue;
    if (depth < 0) break;
    if (letter == ',' && depth == 0) {
      words.push_back(Strip(word));
      word.clear();
    } else {
      word += letter;
    }
  }
  words.push_back(Strip(word));
  if (depth != 0) return BadAxis(axis, text, "brackets that close");
  for (const std::string& each : words) {
    if (each.empty()) return BadAxis(axis, text, "a value between commas");
  }
  return words;
}

absl::StatusOr<std::optional<Expression>> ConditionOf(const std::string& axis,
                                                      const std::string& text) {
  absl::StatusOr<Expression> when = Expression::Parse(text);
  PW_RETURN_IF_ERROR(AboutField(
      axis, Prefix(absl::StrCat("axis ", axis, ": when"), when.status())));
  return std::optional<Expression>(*std::move(when));
}

// The text of a value of a file; a list's parts with commas between them.
absl::StatusOr<std::string> TextOfNode(const std::string& axis,
                                       const ConfigNode& node) {
  if (node.kind == ConfigNode::Kind::kScalar) return node.text;
  if (node.kind == ConfigNode::Kind::kList) {
    Values parts;
    for (const ConfigNode& item : node.items) {
      if (item.kind != ConfigNode::Kind::kScalar) {
        return BadAxis(axis, item.Describe(), "a value");
      }
      parts.push_back(item.text);
    }
    return absl::StrJoin(parts, ",");
  }
  return BadAxis(axis, node.Describe(), "a value or a list");
}

absl::StatusOr<Values> ValuesOfNode(const std::string& axis,
                                    const ConfigNode& node) {
  if (node.kind == ConfigNode::Kind::kScalar) {
    return node.quoted ? Values{node.text} : ValuesOfWord(axis, node.text);
  }
  if (node.kind != ConfigNode::Kind::kList || node.items.empty()) {
    return BadAxis(axis, node.Describe(), "a list of at least one value");
  }
  Values values;
  for (const ConfigNode& item : node.items) {
    PW_ASSIGN_OR_RETURN(std::string text, TextOfNode(axis, item));
    values.push_back(std::move(text));
  }
  return values;
}

absl::Status FillFromMap(const ConfigNode& node, SweepAxis* axis) {
  const std::string name = axis->Name();
  std::string from;
  std::string to;
  std::string by = "1";
  bool multiplies = false;
  Values values;
  for (const ConfigNode::Entry& entry : node.entries) {
    if (entry.key == "values") {
      PW_ASSIGN_OR_RETURN(values, ValuesOfNode(name, entry.value));
      continue;
    }
    static const Values known = {"values", "from",  "to",
                                 "step",   "times", "when"};
    if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
      return AboutField(name, Prefix(absl::StrCat("axis ", name),
                                     UnknownName("key", entry.key, known)));
    }
    PW_ASSIGN_OR_RETURN(const std::string text, TextOfNode(name, entry.value));
    if (entry.key == "when") {
      PW_ASSIGN_OR_RETURN(axis->when, ConditionOf(name, text));
    } else if (entry.key == "from") {
      from = text;
    } else if (entry.key == "to") {
      to = text;
    } else {
      by = text;
      multiplies = entry.key == "times";
    }
  }
  if (values.empty() == (from.empty() || to.empty())) {
    return BadAxis(name, node.Describe(),
                   "values, or from and to with step or times");
  }
  if (values.empty()) {
    PW_ASSIGN_OR_RETURN(values, RangeOfTexts(name, from, to, by, multiplies));
  }
  for (std::string& value : values) axis->values.push_back({std::move(value)});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SweepAxis> AxisOfText(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return BadValue("--sweep", text, "FIELD=VALUES, as in strategy.tp=1,2,4");
  }
  SweepAxis axis;
  axis.place = "--sweep";
  for (const absl::string_view name :
       absl::StrSplit(text.substr(0, equals), ',')) {
    PW_ASSIGN_OR_RETURN(std::string path, PathOfAxis(Strip(name)));
    axis.names.push_back(std::move(path));
  }
  const std::string name = axis.Name();
  std::string list = text.substr(equals + 1);
  const size_t when = list.find(" when ");
  if (when != std::string::npos) {
    PW_ASSIGN_OR_RETURN(axis.when, ConditionOf(name, list.substr(when + 6)));
    list.resize(when);
  }
  PW_ASSIGN_OR_RETURN(const Values words, SplitList(name, list));
  for (const std::string& word : words) {
    if (axis.names.size() > 1) {
      Values parts = absl::StrSplit(word, ':');
      if (parts.size() != axis.names.size()) {
        return BadAxis(
            name, word,
            absl::StrCat(axis.names.size(), " values with ':' between them"));
      }
      axis.values.push_back(std::move(parts));
      continue;
    }
    PW_ASSIGN_OR_RETURN(const Values values, ValuesOfWord(name, word));
    for (const std::string& value : values) AddValue(value, &axis);
  }
  return axis;
}

absl::StatusOr<std::vector<SweepAxis>> AxesOfNode(const ConfigNode& node,
                                                  absl::string_view source) {
  std::vector<SweepAxis> axes;
  if (node.kind != ConfigNode::Kind::kMap) {
    return InFile(source, node.line,
                  BadValue("axes", node.Describe(),
                           "a mapping of fields to their values"));
  }
  for (const ConfigNode::Entry& entry : node.entries) {
    SweepAxis axis;
    axis.place = absl::StrCat(source, ":", entry.line);
    const auto at = [&](const absl::Status& status) {
      return InFile(source, entry.line, status);
    };
    absl::StatusOr<std::string> path = PathOfAxis(entry.key);
    if (!path.ok()) return at(path.status());
    axis.names.push_back(*path);
    if (entry.value.kind == ConfigNode::Kind::kMap) {
      PW_RETURN_IF_ERROR(at(FillFromMap(entry.value, &axis)));
    } else {
      const absl::StatusOr<Values> values = ValuesOfNode(*path, entry.value);
      if (!values.ok()) return at(values.status());
      for (const std::string& value : *values) AddValue(value, &axis);
    }
    axes.push_back(std::move(axis));
  }
  return axes;
}

absl::StatusOr<SweepAxis> LinkedAxisOfNode(const ConfigNode& node,
                                           absl::string_view source) {
  SweepAxis axis;
  axis.place = absl::StrCat(source, ":", node.line);
  const auto at = [&](const absl::Status& status) {
    return InFile(source, node.line, status);
  };
  if (node.kind != ConfigNode::Kind::kMap || node.entries.empty()) {
    return at(BadValue("linked", node.Describe(),
                       "a list of mappings of fields to lists"));
  }
  for (const ConfigNode::Entry& entry : node.entries) {
    if (entry.key == "when") {
      absl::StatusOr<std::optional<Expression>> when =
          ConditionOf("linked", entry.value.text);
      if (!when.ok()) return at(when.status());
      axis.when = *std::move(when);
      continue;
    }
    const absl::StatusOr<std::string> path = PathOfAxis(entry.key);
    if (!path.ok()) return at(path.status());
    const absl::StatusOr<Values> values = ValuesOfNode(*path, entry.value);
    if (!values.ok()) return at(values.status());
    if (axis.names.empty()) axis.values.resize(values->size());
    if (values->size() != axis.values.size()) {
      return at(BadAxis(*path, absl::StrCat("a list of ", values->size()),
                        absl::StrCat(axis.values.size(), " values, as ",
                                     axis.names[0], " has")));
    }
    axis.names.push_back(*path);
    for (size_t choice = 0; choice < values->size(); ++choice) {
      axis.values[choice].push_back((*values)[choice]);
    }
  }
  return axis;
}

}  // namespace pipewright
