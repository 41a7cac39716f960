#include "schedules/dualpipe_gap.h"

namespace pipewright {
namespace {

bool WithoutBlocks(const ScheduleParams& params) {
  const auto pair = params.own.find("pair");
  return pair != params.own.end() && pair->second == "dependencies";
}

}  // namespace

bool IsDualPipeBalanced(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return costs.hop == 0 && costs.pair_factor == 1 &&
         costs.forward == costs.backward_input &&
         (WithoutBlocks(params) ? costs.backward_weight == costs.forward
                                : costs.backward_weight <= costs.forward);
}

double DualPipeGap(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return WithoutBlocks(params)
             ? costs.forward
             : costs.work() + costs.backward_input - 2 * costs.backward_weight;
}

}  // namespace pipewright
