#include "sim/analysis/plot/read_points.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/plot/figure.h"
#include "sim/analysis/sweep/reader.h"
#include "sim/analysis/sweep/result.h"
#include "sim/base/error_parts.h"
#include "sim/base/input.h"
#include "sim/base/json.h"
#include "sim/base/json_fault.h"
#include "sim/base/names.h"
#include "sim/base/quantity.h"
#include "sim/base/shell_word.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr const char* kListWords[] = {"max", "min", "mean", "sum"};
// Indexes of longer lists are not named one by one.
constexpr size_t kMostNamed = 4;

bool AllNumbers(const Json& list) {
  return !list.empty() &&
         std::all_of(list.begin(), list.end(),
                     [](const Json& each) { return each.is_number(); });
}

Json OfList(const Json& list, absl::string_view word) {
  double sum = 0;
  double most = list[0].get<double>();
  double least = most;
  for (const Json& each : list) {
    const double value = each.get<double>();
    sum += value;
    most = std::max(most, value);
    least = std::min(least, value);
  }
  if (word == "max") return most;
  if (word == "min") return least;
  return word == "sum" ? sum : sum / static_cast<double>(list.size());
}

void Collect(const Json& value, const std::string& path,
             std::vector<std::string>* out) {
  const auto below = [&path](absl::string_view name) {
    return path.empty() ? std::string(name) : absl::StrCat(path, ".", name);
  };
  if (value.is_object()) {
    for (const auto& [key, each] : value.items()) {
      Collect(each, below(key), out);
    }
  } else if (value.is_array()) {
    if (AllNumbers(value)) {
      for (const char* word : kListWords) out->push_back(below(word));
    }
    for (size_t index = 0; index < std::min(value.size(), kMostNamed);
         ++index) {
      Collect(value[index], below(absl::StrCat(index)), out);
    }
  } else if (!value.is_null()) {
    out->push_back(path);
  }
}

struct NamedReport {
  std::string name;
  Json report;
  // Axes of a row of a sweep: what it was asked for, "strategy.tp".
  std::vector<std::pair<std::string, Json>> axes;
  std::string command;  // that runs it alone; "" where that is not known
};

// Columns of a page's table, as far as a report has them.
constexpr const char* kColumns[] = {"iteration_s",
                                    "tokens_per_s",
                                    "tflops_per_device",
                                    "mfu",
                                    "bubble_fraction.per_rank",
                                    "bubble_fraction.global",
                                    "peak_memory_bytes.max",
                                    "peak_activations.max"};

bool IsStore(const std::string& path) {
  return absl::EndsWith(path, ".sqlite") || absl::EndsWith(path, ".db");
}

absl::StatusOr<Json> ValueOf(const NamedReport& report,
                             const std::string& path) {
  for (const auto& [name, value] : report.axes) {
    if (name == path) return value;
  }
  return ValueAt(report.report, path);
}

bool IsConfiguration(absl::string_view path) {
  for (const char* ending : {".yaml", ".yml", ".textproto", ".txtpb"}) {
    if (absl::EndsWith(path, ending)) return true;
  }
  return false;
}

absl::Status NoReport(const std::string& file, int64_t line) {
  return InFile(file, line,
                absl::InvalidArgumentError(
                    "not a report; allowed: what simulate --json prints, one "
                    "object, a list of them, or one a line"));
}

absl::Status AddReports(const std::string& file, int64_t line, Json json,
                        std::vector<NamedReport>* out) {
  if (json.is_array()) {
    for (Json& each : json) {
      PW_RETURN_IF_ERROR(AddReports(file, line, std::move(each), out));
    }
    return absl::OkStatus();
  }
  if (!json.is_object()) return NoReport(file, line);
  out->push_back({.name = file, .report = std::move(json)});
  return absl::OkStatus();
}

absl::Status ReadJson(const std::string& file, std::vector<NamedReport>* out) {
  PW_ASSIGN_OR_RETURN(const std::string text,
                      ReadFile(file, InputKind::kProfile));
  absl::StatusOr<Json> whole = ParseJson(text);
  if (whole.ok()) return AddReports(file, 0, *std::move(whole), out);
  const size_t before = out->size();
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<Json> each = ParseJson(line);
    if (!each.ok()) {
      // Not one a line: then it is one that is broken.
      return out->size() == before ? JsonFault(text, file)
                                   : NoReport(file, number);
    }
    PW_RETURN_IF_ERROR(AddReports(file, number, *std::move(each), out));
  }
  return out->empty() ? NoReport(file, 0) : absl::OkStatus();
}

absl::Status Simulated(const std::string& file, RunContext* context,
                       std::vector<std::string>* warnings,
                       std::vector<NamedReport>* out) {
  PW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  PW_ASSIGN_OR_RETURN(const RunConfig config, ReadConfig(text, file));
  SimulateOptions options = {.interval = true};
  PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                      Simulate(config, context, options));
  for (const std::string& warning : run.warnings()) {
    warnings->push_back(absl::StrCat(file, ": ", warning));
  }
  // As it is read: what is not finite is null.
  PW_ASSIGN_OR_RETURN(Json report, ParseJson(ReportToJson(run.report)));
  out->push_back({.name = file, .report = std::move(report)});
  return absl::OkStatus();
}

absl::StatusOr<std::optional<double>> NumberAt(const NamedReport& report,
                                               const std::string& path) {
  absl::StatusOr<Json> value = ValueOf(report, path);
  PW_RETURN_IF_ERROR(InFile(report.name, 0, value.status()));
  if (value->is_null()) return std::optional<double>();
  if (!value->is_number()) {
    return InFile(report.name, 0,
                  FieldError(path, "no number; allowed: the path of one"));
  }
  const double number = value->get<double>();
  return std::isfinite(number) ? std::optional<double>(number) : std::nullopt;
}

// Range of the step, if the report says how far off its times may be.
std::optional<std::pair<double, double>> RangeOf(const Json& report,
                                                 const std::string& path) {
  if (path != "iteration_s") return {};
  const Json* const interval = report.find("iteration_interval_s");
  if (interval == nullptr || !interval->is_array() || interval->size() != 2 ||
      !(*interval)[0].is_number() || !(*interval)[1].is_number()) {
    return {};
  }
  return std::pair((*interval)[0].get<double>(), (*interval)[1].get<double>());
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void AddColumns(const NamedReport& report, FigurePoint* point) {
  for (const auto& [name, value] : report.axes) {
    if (value.is_number()) {
      point->numbers.emplace_back(name, value.get<double>());
    } else if (!value.is_null()) {
      point->words.emplace_back(name, TextOf(value));
    }
  }
  const Json* const schedule = report.report.find("schedule");
  const bool is_axis = std::any_of(
      report.axes.begin(), report.axes.end(),
      [](const auto& axis) { return axis.first == "schedule.name"; });
  if (!is_axis && schedule != nullptr && schedule->is_string()) {
    point->words.emplace_back("schedule", schedule->get<std::string>());
  }
  point->command = report.command;
  for (const char* path : kColumns) {
    const absl::StatusOr<Json> value = ValueAt(report.report, path);
    if (value.ok() && value->is_number()) {
      point->numbers.emplace_back(path, value->get<double>());
    }
    if (const auto range = RangeOf(report.report, path)) {
      point->ranges.emplace_back(path, *range);
    }
  }
}

absl::Status NobodyHas(const std::string& flag, const std::string& path,
                       const NamedReport& report) {
  std::vector<std::string> known = PathsOf(report.report);
  for (const auto& [name, value] : report.axes) known.push_back(name);
  const std::string nearest = NearestName(path, known);
  const std::string allowed = absl::StrCat(
      "the path of a number of the report, as iteration_s or "
      "peak_memory_bytes.max",
      nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"));
  return WithValue(FieldError(flag, absl::StrCat("no report has '", path,
                                                 "'; allowed: ", allowed)),
                   path, allowed);
}

// Turns reports into points, one by one: a sweep may have a million.
class PointReader {
 public:
  PointReader(const PointPaths& paths, ReadPoints* out)
      : paths_(paths), out_(out) {}

  // `series`: its own where no path tells series apart.
  absl::Status Add(const std::string& series, const NamedReport& report) {
    const Json* const fits = report.report.find("fits");
    if (fits != nullptr && *fits == false) {
      AddMisfit();
      return absl::OkStatus();
    }
    PW_RETURN_IF_ERROR(TakeUnit(report));
    if (!first_) first_ = report;
    PW_ASSIGN_OR_RETURN(const std::optional<double> x,
                        NumberAt(report, paths_.x));
    PW_ASSIGN_OR_RETURN(const std::optional<double> y,
                        NumberAt(report, paths_.y));
    any_x_ |= x.has_value();
    any_y_ |= y.has_value();
    if (!x || !y) {
      ++out_->without;
      return absl::OkStatus();
    }
    FigurePoint point;
    point.x = *x;
    point.y = *y;
    point.x_range = RangeOf(report.report, paths_.x);
    point.y_range = RangeOf(report.report, paths_.y);
    point.series = series;
    if (!paths_.series.empty()) {
      PW_ASSIGN_OR_RETURN(const Json value, ValueOf(report, paths_.series));
      if (value.is_null()) {
        return NobodyHas("--series", paths_.series, report);
      }
      point.series = TextOf(value);
    }
    const Json* const schedule = report.report.find("schedule");
    point.name = report.name;
    schedules_.emplace_back();
    if (schedule != nullptr && schedule->is_string()) {
      schedules_.back() = schedule->get<std::string>();
      const bool is_axis = std::any_of(
          report.axes.begin(), report.axes.end(),
          [](const auto& axis) { return axis.first == "schedule.name"; });
      if (!is_axis) absl::StrAppend(&point.name, ", ", schedules_.back());
    }
    if (paths_.columns) AddColumns(report, &point);
    out_->points.push_back(std::move(point));
    return absl::OkStatus();
  }

  // A run that nobody can have: it would stand on the front.
  void AddMisfit() { ++misfits_; }

  absl::Status End() {
    out_->misfits = misfits_;
    if (!first_ && misfits_ > 0) return FieldError("--x", "no run fits");
    if (misfits_ > 0) {
      out_->warnings.push_back(absl::StrCat(
          misfits_, misfits_ == 1 ? " run does not fit and is not drawn"
                                  : " runs do not fit and are not drawn"));
    }
    if (!first_) return FieldError("--x", "no row has a report");
    if (!any_x_) return NobodyHas("--x", paths_.x, *first_);
    if (!any_y_) return NobodyHas("--y", paths_.y, *first_);
    if (out_->points.empty()) {
      return FieldError("--x", "no report has both values");
    }
    TellApart();
    return absl::OkStatus();
  }

 private:
  // Schedules that differ are series, if nothing else is.
  void TellApart() {
    out_->series_path = paths_.series;
    if (!paths_.series.empty()) return;
    for (const FigurePoint& point : out_->points) {
      if (!point.series.empty()) return;
    }
    const std::set<std::string> names(schedules_.begin(), schedules_.end());
    if (names.size() < 2) return;
    out_->series_path = "schedule";
    for (size_t index = 0; index < schedules_.size(); ++index) {
      out_->points[index].series = schedules_[index];
    }
  }

  // Units of a pass and seconds have no common axis.
  absl::Status TakeUnit(const NamedReport& report) {
    const Json* const unit = report.report.find("time_unit");
    const bool in_units =
        unit != nullptr && *unit == TimeUnitName(/*in_units=*/true);
    const bool differs = first_ && in_units != out_->in_units;
    out_->in_units = in_units;
    for (const auto& [flag, path] :
         {std::pair("--x", &paths_.x), std::pair("--y", &paths_.y)}) {
      if (!differs || !IsTimePath(*path)) continue;
      return BadValue(flag, *path,
                      "a number that is no time: some reports are in units of "
                      "a pass, as nobody gave times, and others in seconds");
    }
    return absl::OkStatus();
  }

  const PointPaths& paths_;
  ReadPoints* const out_;
  std::optional<NamedReport> first_;
  std::vector<std::string> schedules_;  // by point
  bool any_x_ = false;
  bool any_y_ = false;
  int64_t misfits_ = 0;
};

Json JsonOf(const SweepCell& cell) {
  switch (cell.kind) {
    case SweepCell::Kind::kNumber: {
      // "strategy.tp 2", not 2.0.
      const double whole = std::nearbyint(cell.number);
      if (whole == cell.number && std::abs(whole) < 1e15) {
        return static_cast<int64_t>(whole);
      }
      return cell.number;
    }
    case SweepCell::Kind::kText:
      return cell.text;
    default:
      return {};
  }
}

// Configurations that the sweeps of one file started from (SweepReader::bases).
constexpr size_t kLinesOfBase = 4;  // that a warning shows

// "base 1" for index 0.
std::string BaseName(int base) { return absl::StrCat("base ", base + 1); }

// What --base may be where these are in use.
std::string AllowedBases(const std::set<int>& bases) {
  if (bases.empty()) return "only with files of sweep that have rows";
  return absl::StrJoin(bases, " or ", [](std::string* out, int base) {
    absl::StrAppend(out, base + 1);
  });
}

// "runs.sqlite: its rows are of 2 bases, ...", with what each has of its own.
std::string BasesWarning(const std::string& file, const SweepReader& store,
                         const std::set<int>& used) {
  std::map<std::string, size_t> count;
  std::vector<std::string> texts;
  for (const int base : used) {
    for (const absl::string_view line :
         absl::StrSplit(store.bases()[base], '\n', absl::SkipEmpty())) {
      ++count[std::string(line)];
    }
  }
  for (const int base : used) {
    std::vector<std::string> own =
        absl::StrSplit(store.bases()[base], '\n', absl::SkipEmpty());
    std::erase_if(own, [&](const std::string& line) {
      return count[line] == used.size();
    });
    const bool more = own.size() > kLinesOfBase;
    if (more) own.resize(kLinesOfBase);
    texts.push_back(own.empty() ? BaseName(base)
                                : absl::StrCat(BaseName(base), " (",
                                               absl::StrJoin(own, ", "),
                                               more ? ", ..." : "", ")"));
  }
  return absl::StrCat(file, ": its rows are of ", used.size(),
                      " bases, which may differ in work; --base draws one: ",
                      absl::StrJoin(texts, ", "));
}

// Null for what only some schedules, systems or sweeps have.
const ConfigField* FieldOf(const std::string& path) {
  static const auto* const fields = [] {
    auto* all = new std::map<std::string, const ConfigField*>;
    for (const ConfigField& field : ConfigFields()) {
      all->emplace(field.path, &field);
    }
    return all;
  }();
  const auto found = fields->find(path);
  return found == fields->end() ? nullptr : found->second;
}

// Rows of this version of the model that have a report. The others would be
// compared with what they cannot be compared with: a warning counts them.
absl::Status AddRows(const std::string& file, const PointPaths& paths,
                     bool several, std::set<int>* bases, PointReader* points,
                     ReadPoints* out) {
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<SweepReader> store,
                      SweepReader::Open(file));
  PW_ASSIGN_OR_RETURN(const int64_t others, store->other_versions());
  if (others > 0) {
    out->warnings.push_back(
        absl::StrCat(file, ": ", others,
                     " rows of another version of the model are left out"));
  }
  PW_ASSIGN_OR_RETURN(const std::set<int> used, store->BasesInUse());
  bases->insert(used.begin(), used.end());
  const bool mixed = used.size() > 1;
  if (mixed && paths.base == 0) {
    out->warnings.push_back(BasesWarning(file, *store, used));
  }
  return store->Visit({}, /*all_versions=*/false, [&](const SweepRow& row) {
    if (paths.base > 0 && row.base + 1 != paths.base) return absl::OkStatus();
    if (row.status == NameOf(PointStatus::kMisfit)) {
      points->AddMisfit();
      return absl::OkStatus();
    }
    NamedReport report = {.name = "", .report = row.report()};
    if (!report.report.is_object()) {
      ++out->without;
      return absl::OkStatus();
    }
    std::vector<std::string> words;
    std::vector<std::pair<std::string, std::string>> fields;
    for (const auto& [name, cell] : row.axes) {
      report.axes.emplace_back(name, JsonOf(cell));
      words.push_back(
          absl::StrCat(name, " ", TextOf(report.axes.back().second)));
      if (cell.kind != SweepCell::Kind::kNone) {
        fields.emplace_back(name, TextOf(report.axes.back().second));
        const ConfigField* const field = FieldOf(name);
        if (cell.kind == SweepCell::Kind::kNumber && field != nullptr &&
            field->unit != Unit::kNone) {
          absl::StrAppend(&fields.back().second, " ", SiUnit(field->unit));
        }
      }
    }
    if (paths.columns && row.base >= 0) {
      fields.emplace_back("engine", row.engine);
      report.command = SimulateCommand(store->bases()[row.base], fields);
    }
    // Where a row is from: series may tell something else apart.
    std::vector<std::string> from;
    if (several) {
      from.push_back(file);
      report.axes.emplace_back("file", file);
    }
    if (mixed) {
      from.push_back(BaseName(row.base));
      report.axes.emplace_back("base", BaseName(row.base));
    }
    words.insert(words.begin(), from.begin(), from.end());
    report.name = words.empty() ? file : absl::StrJoin(words, ", ");
    return points->Add(absl::StrJoin(from, ", "), report);
  });
}

}  // namespace

absl::StatusOr<ReadPoints> ReadPointsOf(const std::vector<std::string>& files,
                                        const PointPaths& paths,
                                        RunContext* context) {
  ReadPoints out;
  PointReader points(paths, &out);
  const bool several = files.size() > 1;
  std::set<int> bases;
  for (const std::string& file : files) {
    if (IsStore(file)) {
      PW_RETURN_IF_ERROR(AddRows(file, paths, several, &bases, &points, &out));
      continue;
    }
    std::vector<NamedReport> reports;
    if (IsConfiguration(file)) {
      PW_RETURN_IF_ERROR(Simulated(file, context, &out.warnings, &reports));
    } else {
      PW_RETURN_IF_ERROR(ReadJson(file, &reports));
    }
    for (size_t index = 0; index < reports.size(); ++index) {
      if (reports.size() > 1) {
        absl::StrAppend(&reports[index].name, " (", index + 1, ")");
      }
      if (several) reports[index].axes.emplace_back("file", file);
      PW_RETURN_IF_ERROR(points.Add(several ? file : "", reports[index]));
    }
  }
  if (paths.base > 0 && !bases.contains(static_cast<int>(paths.base - 1))) {
    return BadValue("--base", absl::StrCat(paths.base), AllowedBases(bases));
  }
  PW_RETURN_IF_ERROR(points.End());
  return out;
}

std::string SimulateCommand(
    absl::string_view config,
    const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string command = "pipewright simulate";
  const auto set = [&command](absl::string_view path, absl::string_view value) {
    absl::StrAppend(&command, " --set ",
                    QuotedWord(absl::StrCat(path, "=", value)));
  };
  std::map<std::string, std::string> own;
  for (const absl::string_view line :
       absl::StrSplit(config, '\n', absl::SkipEmpty())) {
    own.insert(absl::StrSplit(line, absl::MaxSplits(": ", 1)));
  }
  const std::map<std::string, std::string> given(fields.begin(), fields.end());
  for (const std::string times : {"costs.uniform", "costs.per_stage"}) {
    // A whole backward stands beside its parts, which were made of it.
    const std::string whole = absl::StrCat(times, ".backward");
    if (given.contains(whole)) {
      for (const char* part : {"_input", "_weight"}) own.erase(whole + part);
    } else if (own.contains(whole + "_input")) {
      own.erase(whole);
    }
  }
  for (const auto& [path, value] : own) {
    if (given.contains(path)) continue;
    const ConfigField* const field = FieldOf(path);
    if (field == nullptr || field->kind != FieldKind::kSection) {
      set(path, value);
      continue;
    }
    // A section without a field of its own; with one it is there anyway.
    const auto next = own.upper_bound(absl::StrCat(path, "."));
    const bool has_field =
        next != own.end() &&
        absl::StartsWith(next->first, absl::StrCat(path, "."));
    if (!has_field) set(absl::StrCat(path, ".device"), "auto");
  }
  for (const auto& [path, value] : fields) set(path, value);
  return command;
}

absl::StatusOr<Json> ValueAt(const Json& report, absl::string_view path) {
  const Json* at = &report;
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    if (at->is_object()) {
      at = at->find(part);
      if (at == nullptr) return Json();
    } else if (at->is_array()) {
      int64_t index = 0;
      if (absl::SimpleAtoi(part, &index) && index >= 0) {
        if (index >= static_cast<int64_t>(at->size())) return Json();
        at = &(*at)[index];
        continue;
      }
      const bool word =
          std::any_of(std::begin(kListWords), std::end(kListWords),
                      [part](const char* each) { return part == each; });
      if (!word || part.data() + part.size() != path.data() + path.size()) {
        return Json();
      }
      if (!AllNumbers(*at)) return Json();
      return OfList(*at, part);
    } else {
      return Json();
    }
  }
  if (at->is_structured()) {
    return FieldError(path, at->is_array()
                                ? "a list; allowed: .max, .min, .mean, .sum or "
                                  "an index behind it"
                                : "several values; allowed: one of them, as "
                                  "PATH.KEY");
  }
  return *at;
}

std::vector<std::string> PathsOf(const Json& report) {
  std::vector<std::string> out;
  Collect(report, "", &out);
  return out;
}

}  // namespace pipewright
