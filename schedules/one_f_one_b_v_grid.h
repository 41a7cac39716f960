// 1F1B-V's order: a pattern of six slots that repeats, moved to the left on a
// grid of slots. Has no costs; one_f_one_b_v.cc is the schedule.
// Source: zero-bubble-pipeline-parallelism, the authors' implementation of
// arXiv 2405.15362, branch main.
#pragma once

#include "sim/schedule/builder.h"

namespace pipewright {

// Adds all passes, F and BW, of a V placement.
void AddOneFOneBV(int pp, int microbatches, ScheduleBuilder& builder);

}  // namespace pipewright
