// What a sweep keeps of a point, and how it travels between processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
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
  std::string axes;  // JSON
  std::optional<bool> fits;
  // "s" or "unit" (TimeUnitName); "" without a report.
  std::string time_unit;
  std::optional<double> iteration_s;  // or units of a pass
  std::optional<double> tokens_per_s;
  std::optional<double> peak_memory_bytes;  // on the rank that needs most
  std::optional<double> bubble_global;
  std::optional<double> bubble_per_rank;
  std::optional<double> mfu;
  // Shape and leaves of the report (leaves.h); "" without one.
  std::string shape;
  std::string leaves;
};

// Runs the point on its engine. It never fails: what goes wrong is the result,
// also what `progress` throws to end a run. `progress` may be null.
PointResult EvaluatePoint(const SweepPoints& points,
                          const SweepChoices& choices, RunContext* context,
                          Progress* progress = nullptr);

// The row of a point that gave none.
PointResult LostPoint(const SweepPoints& points, const SweepChoices& choices,
                      PointStatus status, absl::string_view reason);

// As bytes, for another process of this program.
void AppendResult(const PointResult& result, std::string* bytes);
// Takes one off the front. False where the bytes are none.
bool TakeResult(absl::string_view* bytes, PointResult* result);

}  // namespace pipewright
