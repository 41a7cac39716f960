// ZeroPP: microbatches in scheduling units; inside a unit all of them run
// breadth first through the chunks of a rank, so that with fully sharded data
// parallelism a chunk's parameters are gathered once a unit and direction, and
// its gradients scattered once a unit. A boundary between units stands where a
// rank has run B of all that it has forwarded.
//
// A reconstruction: the paper's own order was not available (zeropp_plan.h).
#include <algorithm>
#include <utility>

#include "schedules/zeropp_plan.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::zeropp {
namespace {

constexpr char kName[] = "zeropp";

Schedule BuildUnits(const ScheduleParams& params, int unit) {
  ScheduleBuilder builder(kName, Placement::Loop(params.pp, params.vpp),
                          params.microbatches);
  AddUnitOrders(params, unit, builder);
  Schedule schedule = std::move(builder).Finish();
  schedule.unit = unit;
  return schedule;
}

// Largest of all ranks, in the unit of peak_activations.
double Peak(const Schedule& schedule, double held_until_weight) {
  double peak = 0;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    int64_t whole = 0;
    int64_t weight_part = 0;
    for (const Pass pass : schedule.order(rank)) {
      whole += pass.kind() == PassKind::kForward;
      whole -= pass.kind() == PassKind::kBackwardInput;
      weight_part += pass.kind() == PassKind::kBackwardInput;
      weight_part -= pass.kind() == PassKind::kBackwardWeight;
      peak = std::max(peak, whole + held_until_weight * weight_part);
    }
  }
  return peak / schedule.vpp();
}

// 2p-1 microbatches are the fewest that leave no bubble on several chunks.
int LargestUnit(const ScheduleParams& params) {
  return std::min(2 * params.pp - 1, params.microbatches);
}

absl::StatusOr<int> GivenUnit(const ScheduleParams& params) {
  return IntParam(params, "unit", LargestUnit(params), 1, params.microbatches);
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  PW_ASSIGN_OR_RETURN(int unit, GivenUnit(params));
  Schedule schedule = BuildUnits(params, unit);
  if (params.own.count("unit") > 0 || !params.max_activations) return schedule;
  // A unit is held whole. Where even one microbatch is too much, the caller
  // sees the peak.
  const double limit = *params.max_activations;
  unit = std::min(unit, std::max(1, static_cast<int>(limit)) + 1);
  while (unit > 1 && Peak(schedule, params.costs.held_until_weight) > limit) {
    schedule = BuildUnits(params, --unit);
  }
  return schedule;
}

bool FullUnits(const ScheduleParams& params) {
  const auto unit = GivenUnit(params);
  return params.vpp >= 2 && unit.ok() && *unit == 2 * params.pp - 1 &&
         params.microbatches % *unit == 0 && !params.max_activations &&
         params.costs.equal_without_hop();
}

constexpr char kSource[] =
    "arXiv 2402.03791 has zero bubble at U = 2p-1, from memory; measured on "
    "this order; v >= 2, U | m, F = B = W, no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "breadth first in units of microbatches, W fills "
               "(reconstruction)",
    .source = "ZeroPP, arXiv 2402.03791; reconstruction, not the paper's own "
              "order",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {{"unit", "2*pp-1, fewer where --max-activations asks for it",
                "1..microbatches",
                "microbatches that share a gather of a chunk's parameters"}},
    .build = Build,
    .claims =
        {
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "0",
             .source = kSource,
             .domain = FullUnits,
             .value = [](const ScheduleParams&, int) { return 0.0; }},
            {.metric = Claim::Metric::kBubbleGlobal,
             .formula = "(p-1)F/v",
             .source = kSource,
             .domain = FullUnits,
             .value =
                 [](const ScheduleParams& params, int) {
                   return (params.pp - 1) * params.costs.forward / params.vpp;
                 }},
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "U, counted until B",
             .source = "derived from the rule",
             .domain =
                 [](const ScheduleParams& params) {
                   return params.costs.held_until_weight == 0;
                 },
             .value = [](const ScheduleParams& params, int) -> double {
               return GivenUnit(params).value_or(params.microbatches);
             }},
        },
});

}  // namespace
}  // namespace pipewright::zeropp
