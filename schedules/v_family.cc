#include "schedules/v_family.h"

#include <optional>
#include <utility>

#include "schedules/v_greedy.h"
#include "schedules/v_launch.h"
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

absl::StatusOr<Schedule> BuildGreedyV(
    absl::string_view name, const ScheduleParams& params,
    const std::vector<std::array<int, 4>>& block) {
  PW_ASSIGN_OR_RETURN(const VChoice choice, CheckVParams(name, params));
  const VOrders fixed = GreedyV(params.microbatches, block);
  if (!choice.real_costs) return VSchedule(name, fixed);
  const double held = params.costs.held_until_weight;
  const VLimit limit = {.chunks = VPeakChunks(fixed),
                        .activations = VPeak(fixed, held)};
  VPlan best = {.orders = fixed, .span = VSpan(fixed, params.costs)};
  for (std::optional<VPlan>& planned :
       std::array{PlanV(params.pp, params.microbatches, limit.chunks,
                        params.costs, kMaxPasses),
                  PlanVLaunches(params.pp, params.microbatches, limit,
                                params.costs, kMaxPasses)}) {
    if (planned && planned->span < best.span &&
        VPeak(planned->orders, held) <= limit.activations) {
      best = *std::move(planned);
    }
  }
  return VSchedule(name, best.orders);
}

}  // namespace pipewright
