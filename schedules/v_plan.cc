#include "schedules/v_plan.h"

#include <algorithm>

#include "schedules/v_blocks.h"
#include "schedules/v_build.h"

namespace pipewright {

std::optional<VPlan> PlanV(int pp, int microbatches, int limit,
                           const PlanCosts& costs) {
  limit = std::min(limit, 2 * pp);
  VBuilder builder(pp, microbatches);
  VReplay<double> replay(pp, microbatches);
  VBlockSlots slots;
  std::optional<VPlan> best;
  ForEachVBlock(pp, [&](const VBlock& block) {
    PlaceVBlock(block, pp, &slots);
    if (!builder.Build(slots, VBlockPeak(slots), limit)) return VVisit::kNext;
    const double span = VSpan(builder.orders(), costs, &replay);
    if (!best || span < best->span) {
      best = VPlan{.orders = builder.orders(), .span = span};
    }
    return VVisit::kNext;
  });
  return best;
}

int SmallestVLimit(int pp, int microbatches) {
  int smallest = 2 * pp;
  VBuilder builder(pp, microbatches);
  VBlockSlots slots;
  ForEachVBlock(pp, [&](const VBlock& block) {
    PlaceVBlock(block, pp, &slots);
    // Only a smaller peak is of interest.
    if (builder.Build(slots, VBlockPeak(slots), smallest - 1)) {
      smallest = builder.peak();
    }
    return VVisit::kNext;
  });
  return smallest;
}

}  // namespace pipewright
