// Shared by the rows of the V family with a split backward: checks of their
// parameters, and the choice between a fixed order and a planned one.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "schedules/v_orders.h"
#include "sim/schedule/registry.h"

namespace pipewright {

// Own parameter `plan`: planners see the real costs or F = B = W.
ParamInfo VPlanParam();

// Error: kInvalidArgument for another vpp than 2, for slices, for an unknown
// `plan`.
struct VChoice {
  bool real_costs;  // costs are given and the plan may use them
};
absl::StatusOr<VChoice> CheckVParams(absl::string_view name,
                                     const ScheduleParams& params);

// The fixed order of `block` (v_greedy.h). With real costs, the faster of the
// adaptive planner's (v_plan.h) and the launch planner's (v_launch.h), where
// that is faster yet and no rank holds more than the fullest one of the fixed
// order.
absl::StatusOr<Schedule> BuildGreedyV(
    absl::string_view name, const ScheduleParams& params,
    const std::vector<std::array<int, 4>>& block);

}  // namespace pipewright
