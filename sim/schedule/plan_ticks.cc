#include "sim/schedule/plan_ticks.h"

#include <algorithm>
#include <cmath>

namespace pipewright {
namespace {

// A double has 15 digits; 12 leave room for the rounding of a unit's change.
constexpr double kLargest = 1e12;
constexpr double kLongestSpan = 4e18;  // below 2^63

// Ticks of a unit of the costs, as a power of ten.
double PowerOf(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  double dearest =
      std::max({costs.forward / params.vpp, costs.backward_input / params.vpp,
                costs.backward_weight / params.vpp, costs.hop});
  for (const StageTimes& stage : costs.stages) {
    dearest = std::max(
        {dearest, stage.forward, stage.backward_input, stage.backward_weight});
  }
  for (const std::vector<double>* const each :
       {&costs.recompute, &costs.copy_out, &costs.copy_in}) {
    for (const double seconds : *each) dearest = std::max(dearest, seconds);
  }
  if (!(dearest > 0)) return 0;
  // F, B, W, and two hops of each stage and microbatch.
  const double operations =
      5.0 * params.pp * params.vpp * params.microbatches * params.slices;
  const double most = std::min(kLargest, kLongestSpan / operations);
  return std::floor(std::log10(most / dearest));
}

int64_t Ticks(double cost, double power) {
  // Powers of ten are exact, their inverses are not.
  return std::llround(power < 0 ? cost / std::pow(10, -power)
                                : cost * std::pow(10, power));
}

PlanTicks Ticks(const StageTimes& stage, double hop, double power) {
  return {.forward = Ticks(stage.forward, power),
          .backward_input = Ticks(stage.backward_input, power),
          .backward_weight = Ticks(stage.backward_weight, power),
          .hop = Ticks(hop, power),
          .again = Ticks(stage.forward, power)};
}

}  // namespace

double TickOf(const ScheduleParams& params) {
  return std::pow(10, -PowerOf(params));
}

PlanTicks TicksOf(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return Ticks({.forward = costs.forward / params.vpp,
                .backward_input = costs.backward_input / params.vpp,
                .backward_weight = costs.backward_weight / params.vpp},
               costs.hop, PowerOf(params));
}

std::vector<PlanTicks> TicksOfStages(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  const double power = PowerOf(params);
  std::vector<PlanTicks> stages;
  for (const StageTimes& stage : costs.stages) {
    stages.push_back(Ticks(stage, costs.hop, power));
  }
  if (stages.empty()) {
    stages.assign(static_cast<size_t>(params.pp) * params.vpp, TicksOf(params));
  }
  for (size_t stage = 0; stage < costs.recompute.size(); ++stage) {
    stages[stage].again = Ticks(costs.recompute[stage], power);
  }
  for (size_t stage = 0; stage < costs.copy_out.size(); ++stage) {
    stages[stage].out = Ticks(costs.copy_out[stage], power);
    stages[stage].in = Ticks(costs.copy_in[stage], power);
  }
  return stages;
}

int64_t LeastSpan(const std::vector<PlanTicks>& ranks, int microbatches,
                  double limit) {
  const PlanTicks& first = ranks.front();
  int64_t trip = -2 * first.hop;  // a microbatch from rank 0 and back
  int64_t most_work = 0;
  for (const PlanTicks& rank : ranks) {
    trip += rank.forward + rank.backward_input + 2 * rank.hop;
    most_work = std::max(most_work, rank.work());
  }
  const auto held = static_cast<int64_t>(
      std::min<double>(microbatches, limit * (1 + kLimitRounding)));
  const int64_t idle =
      std::max<int64_t>(0, trip - first.backward_input - held * first.forward);
  const int64_t trips = (microbatches + held - 1) / held;
  return std::max({microbatches * most_work, microbatches * first.work() + idle,
                   trips * trip + first.backward_weight});
}

}  // namespace pipewright
