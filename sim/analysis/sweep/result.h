// What a sweep keeps of a point, and how it travels between processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/sweep/cell.h"
#include "sim/analysis/sweep/points.h"
#include "sim/config/run_context.h"

namespace pipewright {

class Progress;

enum class PointStatus : uint8_t {
  kOk,
  kMisfit,   // over memory or another limit; the report is there
  kRefused,  // impossible sizes, a schedule that deadlocks
  kCrashed,
  kTimeout,
};
// "ok", "misfit", "refused", "crashed", "timeout".
const char* NameOf(PointStatus status);

struct PointResult {
  // Set by whoever stores it: its hash, and its place in the grid (GridWalk).
  PointHash hash = {};
  std::optional<int64_t> place;
  PointStatus status = PointStatus::kOk;
  int exit = 0;        // what `simulate` would exit with
  std::string reason;  // "" for kOk
  std::string engine;
  std::optional<int64_t> seed;
  // SweepPoints::AxesJson(), or stored the numbers of its values, "[0,2,-1]".
  std::string axes;
  std::optional<bool> fits;
  // "s" or "unit" (TimeUnitName); "" without a report.
  std::string time_unit;
  std::optional<double> iteration_s;  // or units of a pass
  std::optional<double> tokens_per_s;
  std::optional<double> peak_memory_bytes;  // on the rank that needs most
  std::optional<double> bubble_global;
  std::optional<double> bubble_per_rank;
  std::optional<double> mfu;
  std::vector<std::string> warnings;  // of the report; not stored
  // Shape and leaves of the report (leaves.h); "" without one, and if it is not
  // kept.
  std::string shape;
  std::string leaves;
};

// Runs the point on its engine. It never fails: what goes wrong is the result,
// also what `progress` throws to end a run. `progress` may be null. A report
// that is not kept is ten times what else is known of a point.
PointResult EvaluatePoint(const SweepPoints& points,
                          const SweepChoices& choices, RunContext* context,
                          Progress* progress = nullptr,
                          bool keeps_report = true);

// The same point again, from its row: the base as its sweep has it, a line a
// field, and its axes. Error: kInvalidArgument if that is another point now,
// because a file has changed.
absl::StatusOr<PointResult> EvaluateAgain(
    const std::string& base,
    const std::vector<std::pair<std::string, SweepCell>>& axes,
    const std::string& engine, const PointHash& hash, RunContext* context);

// The row of a point that gave none.
PointResult LostPoint(const SweepPoints& points, const SweepChoices& choices,
                      PointStatus status, absl::string_view reason);

// As bytes, for another process of this program.
void AppendResult(const PointResult& result, std::string* bytes);
// Takes one off the front. False where the bytes are none.
bool TakeResult(absl::string_view* bytes, PointResult* result);

}  // namespace pipewright
