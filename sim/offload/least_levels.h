// The least that a rank keeps of its activations at its fullest, by what fits
// on the lanes of copies at one moment after the other. No plan is made, and
// none keeps less.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/offload/activation_plan.h"

namespace pipewright {

// What a rank keeps without copies while a pass of its order runs, however it
// is counted. Position -1: nothing is known.
struct KnownLevel {
  int64_t position = -1;
  double level = 0;
};

// [rank], in the unit of OffloadCosts::weight; `known` of each rank. Schedules
// without slices. The rest is as for PlanOffload.
absl::StatusOr<std::vector<double>> LeastLevels(
    const Schedule& schedule, const Program& program,
    const OffloadChoice& choice, const OffloadCosts& costs,
    const std::vector<KnownLevel>& known);

}  // namespace pipewright
