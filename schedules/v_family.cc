#include "schedules/v_family.h"

#include <optional>

#include "schedules/v_greedy.h"
#include "schedules/v_plan.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr char kCosts[] = "costs";
constexpr char kReference[] = "reference";

// Some ten milliseconds beside the fixed order.
constexpr int64_t kMaxPasses = 120000;

}  // namespace

ParamInfo VPlanParam() {
  return {"plan", kCosts, "costs|reference",
          "reference: plan with F=B=W and no hops as the authors do, even "
          "where costs are given; above 8 ranks plans try a sample of the "
          "blocks"};
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

absl::StatusOr<Schedule> BuildGreedyV(
    absl::string_view name, const ScheduleParams& params,
    const std::vector<std::array<int, 4>>& block) {
  PW_ASSIGN_OR_RETURN(const VChoice choice, CheckVParams(name, params));
  const VOrders fixed = GreedyV(params.microbatches, block);
  if (!choice.real_costs) return VSchedule(name, fixed);
  const std::optional<VPlan> planned =
      PlanV(params.pp, params.microbatches, VPeakChunks(fixed), params.costs,
            kMaxPasses);
  const double held = params.costs.held_until_weight;
  const bool better = planned && planned->span < VSpan(fixed, params.costs) &&
                      VPeak(planned->orders, held) <= VPeak(fixed, held);
  return VSchedule(name, better ? planned->orders : fixed);
}

}  // namespace pipewright
