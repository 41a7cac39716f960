// How much of a rank's activations copies can have taken away at a moment, by
// what fits on their lanes alone. No plan is made, and none takes away more.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/offload/activation_plan.h"

namespace pipewright {

// While the pass at `positions[rank]` of the rank's order runs; 0 where that is
// below 0. [rank], in the unit of what copies take (OffloadCosts). The rest is
// as for PlanOffload.
absl::StatusOr<std::vector<double>> MostAway(
    const Schedule& schedule, const Program& program,
    const OffloadChoice& choice, const OffloadCosts& costs,
    const std::vector<int64_t>& positions);

}  // namespace pipewright
