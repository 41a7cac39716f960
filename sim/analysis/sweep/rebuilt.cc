#include "sim/analysis/sweep/rebuilt.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/flags.h"
#include "sim/config/run_config.h"

namespace pipewright {
namespace {

constexpr int kMostChecks = 1000;

// As the reader has them of the file.
std::vector<std::pair<std::string, SweepCell>> AxesAt(
    const SweepGrid& grid, const SweepChoices& choices) {
  std::vector<std::pair<std::string, SweepCell>> axes;
  for (size_t axis = 0; axis < choices.size(); ++axis) {
    if (choices[axis] < 0) continue;
    const SweepAxis& of = grid.axes[axis];
    for (size_t index = 0; index < of.names.size(); ++index) {
      axes.emplace_back(of.names[index],
                        CellOfValue(of.values[choices[axis]][index]));
    }
  }
  return axes;
}

}  // namespace

absl::StatusOr<SweepPoints> RebuiltPoint(
    const std::string& base,
    const std::vector<std::pair<std::string, SweepCell>>& axes,
    const std::string& engine, RunContext* context) {
  std::map<std::string, std::string> fields;
  for (const absl::string_view line :
       absl::StrSplit(base, '\n', absl::SkipEmpty())) {
    fields.insert(absl::StrSplit(line, absl::MaxSplits(": ", 1)));
  }
  fields["engine"] = engine;
  for (const auto& [path, cell] : axes) {
    std::string value = ToString(cell);
    for (const ConfigField& field : ConfigFields()) {
      const bool has_unit = cell.kind == SweepCell::Kind::kNumber &&
                            path == field.path && field.unit != Unit::kNone;
      if (has_unit) absl::StrAppend(&value, " ", SiUnit(field.unit));
    }
    fields[path] = std::move(value);
  }
  // A whole backward stands beside its parts, which were made of it.
  for (const std::string whole :
       {"costs.uniform.backward", "costs.per_stage.backward"}) {
    if (!fields.contains(whole)) continue;
    for (const char* part : {"_input", "_weight"}) fields.erase(whole + part);
  }
  std::vector<ConfigEdit> edits;
  for (const auto& [path, value] : fields) {
    const bool is_section = std::any_of(
        ConfigFields().begin(), ConfigFields().end(),
        [&path = path](const ConfigField& field) {
          return path == field.path && field.kind == FieldKind::kSection;
        });
    if (!is_section) {
      // Messages name what most likely has given it.
      std::string origin = path;
      for (const ConfigFlag& flag : ConfigFlags()) {
        if (flag.path == path) origin = flag.flag;
      }
      edits.push_back({.path = path, .value = value, .origin = origin});
      continue;
    }
    // A section without a field of its own; with one it is there anyway.
    const auto next = fields.upper_bound(absl::StrCat(path, "."));
    if (next == fields.end() ||
        !absl::StartsWith(next->first, absl::StrCat(path, "."))) {
      edits.push_back({.path = absl::StrCat(path, ".device"),
                       .value = "auto",
                       .origin = path});
    }
  }
  const auto read = [&edits](const std::vector<ConfigEdit>& more) {
    return ReadConfig("", "", {edits, more});
  };
  return SweepPoints::Create(read, {}, engine, context);
}

bool CanBeRebuilt(const SweepPoints& points, RunContext* context) {
  const std::string base = ToString(points.base());
  std::vector<std::set<int32_t>> unseen;  // by axis
  size_t left = 0;
  for (const SweepAxis& axis : points.grid().axes) {
    auto& values = unseen.emplace_back();
    // -1: without a value, if its condition does not hold.
    const int32_t least = axis.when ? -1 : 0;
    const auto count = static_cast<int32_t>(axis.values.size());
    for (int32_t choice = least; choice < count; ++choice) {
      values.insert(values.end(), choice);
    }
    left += values.size();
  }
  int checks = 0;
  GridWalk walk(&points.grid(), points.base());
  while (left > 0 && checks < kMostChecks && walk.Next()) {
    const SweepChoices& choices = walk.choices();
    bool is_new = false;
    for (size_t axis = 0; axis < choices.size(); ++axis) {
      is_new |= unseen[axis].contains(choices[axis]);
    }
    if (!is_new) continue;
    ++checks;
    const absl::StatusOr<RunConfig> config = points.At(choices);
    if (!config.ok()) continue;  // it has no report
    const absl::StatusOr<SweepPoints> again =
        RebuiltPoint(base, AxesAt(points.grid(), choices),
                     config->engine.value_or(""), context);
    if (!again.ok() || again->HashAt({}) != points.HashAt(choices)) {
      return false;
    }
    for (size_t axis = 0; axis < choices.size(); ++axis) {
      left -= unseen[axis].erase(choices[axis]);
    }
  }
  return true;
}

}  // namespace pipewright
