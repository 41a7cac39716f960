// A point of a sweep once more, from what its file has of it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/analysis/sweep/cell.h"
#include "sim/analysis/sweep/points.h"
#include "sim/config/run_context.h"

namespace pipewright {

// The only point of the base, a line a field, with these axes on top. Error:
// kInvalidArgument or kNotFound as of flags that say the same.
absl::StatusOr<SweepPoints> RebuiltPoint(
    const std::string& base,
    const std::vector<std::pair<std::string, SweepCell>>& axes,
    const std::string& engine, RunContext* context);

// Does RebuiltPoint give the hashes of these points? Asked of the first point
// and of one for every value of every axis, of at most a thousand.
bool CanBeRebuilt(const SweepPoints& points, RunContext* context);

}  // namespace pipewright
