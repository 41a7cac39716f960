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

}  // namespace pipewright
