#include "sim/replay/plan_ticks.h"

#include <algorithm>
#include <cmath>

namespace pipewright {
namespace {

// A double has 15 digits; 12 leave room for the rounding of a unit's change.
constexpr double kLargest = 1e12;
constexpr double kLongestSpan = 4e18;  // below 2^63

}  // namespace

PlanTicks TicksOf(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  const double chunk[] = {costs.forward / params.vpp,
                          costs.backward_input / params.vpp,
                          costs.backward_weight / params.vpp, costs.hop};
  const double dearest = *std::max_element(std::begin(chunk), std::end(chunk));
  if (!(dearest > 0)) return {};
  // F, B, W, and two hops of each stage and microbatch.
  const double operations =
      5.0 * params.pp * params.vpp * params.microbatches * params.slices;
  const double most = std::min(kLargest, kLongestSpan / operations);
  const double power = std::floor(std::log10(most / dearest));
  const auto ticks = [&](double cost) {
    // Powers of ten are exact, their inverses are not.
    return std::llround(power < 0 ? cost / std::pow(10, -power)
                                  : cost * std::pow(10, power));
  };
  return {.forward = ticks(chunk[0]),
          .backward_input = ticks(chunk[1]),
          .backward_weight = ticks(chunk[2]),
          .hop = ticks(chunk[3])};
}

}  // namespace pipewright
