// An order for stages that walk to and fro over the ranks, by list scheduling
// in slots: a chunk's forward takes one, its full backward two, hops none. Our
// own rule, not a published one:
//   - a rank that has both runs a forward and a backward in turn;
//   - of the forwards the deepest stage first, so that waves turn early;
//   - of the backwards the stage nearest to the end of the backward first, but
//     with several waves and more microbatches than ranks the one farthest
//     from it;
//   - then the lowest microbatch.
#pragma once

#include "sim/schedule/builder.h"

namespace pipewright {

// Appends all passes of all ranks. At most `most_in_flight` microbatches, at
// least 1, are between their first forward and their last backward.
void AddWaveOrder(const Placement& placement, int microbatches,
                  int most_in_flight, ScheduleBuilder& builder);

}  // namespace pipewright
