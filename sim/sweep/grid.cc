#include "sim/sweep/grid.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/flags.h"

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

}  // namespace

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

}  // namespace pipewright
