// Costs as whole ticks, for planners that compare sums of them: with doubles
// 0.1 + 0.2 would arrive after 0.3, and a plan would depend on the unit of its
// costs. A tick is a power of ten of that unit, so decimal costs stay exact.
// No plan and no time of a pass is computed here, only what none can beat.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/schedule/params.h"

namespace pipewright {

struct PlanTicks {
  // Ticks of one chunk: 1/vpp of a microbatch through a rank.
  int64_t forward = 0;
  int64_t backward_input = 0;
  int64_t backward_weight = 0;
  int64_t hop = 0;
  int64_t again = 0;  // R
  int64_t out = 0;    // O
  int64_t in = 0;     // L

  int64_t work() const { return forward + backward_input + backward_weight; }
};

// A tick in the unit of the costs.
double TickOf(const ScheduleParams& params);

// The dearest cost gets up to 12 digits, fewer where all passes and hops of
// the schedule one after the other would overflow.
PlanTicks TicksOf(const ScheduleParams& params);

// [stage]; the same for all where costs.stages is empty.
std::vector<PlanTicks> TicksOfStages(const ScheduleParams& params);

// Lower bound of the longest span of a rank. Each has one stage, runs its
// microbatches in order, and holds the activations of `limit` of them at most.
// The first B must come back to rank 0 (arXiv 2401.10241, appendix B), where no
// more than the limit go on their way before one is back.
int64_t LeastSpan(const std::vector<PlanTicks>& ranks, int microbatches,
                  double limit);

}  // namespace pipewright
