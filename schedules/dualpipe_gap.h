// Shared by the bubbles of DualPipe and DualPipeV: a gap that each step of the
// fill leaves, and its source.
#pragma once

#include "sim/schedule/params.h"

namespace pipewright {

// F = B >= W, no hops, pairs that take as long as their passes; without blocks
// (pair=dependencies) F = B = W.
bool IsDualPipeBalanced(const ScheduleParams& params);

// F&BW + BW - 3W, in the unit of the costs; F without blocks.
double DualPipeGap(const ScheduleParams& params);

}  // namespace pipewright
