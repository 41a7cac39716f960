#include "schedules/v_choice.h"

#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr char kCosts[] = "costs";
constexpr char kReference[] = "reference";

}  // namespace

ParamInfo VPlanParam() {
  return {"plan", kCosts, "costs|reference",
          "costs: where costs are given, the fastest of the fixed order and of "
          "plans at these costs with no higher peak. reference: plan with "
          "F=B=W and no hops as the authors do; above 8 ranks plans try a "
          "sample of the blocks"};
}

absl::StatusOr<VChoice> CheckVParams(absl::string_view name,
                                     const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(name, "strategy.vpp", params.vpp, 2));
  PW_RETURN_IF_ERROR(RequireOnly(name, "strategy.slices", params.slices, 1));
  PW_ASSIGN_OR_RETURN(
      const std::string plan,
      ChoiceParam(params, "plan", kCosts, {kCosts, kReference}));
  return VChoice{.real_costs = plan == kCosts && params.costs.given};
}

}  // namespace pipewright
