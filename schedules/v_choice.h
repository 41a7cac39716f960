// The parameters of the V family with a split backward.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

}  // namespace pipewright
