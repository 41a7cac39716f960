// The greedy order in scheduling units for zeropp.cc: loop placement; a rank
// takes B before F before W; forwards of a unit go by chunk upwards, backwards
// by chunk downwards; no forward of a unit before all B of the units before it
// on that rank.
//
// Planned on a grid where every pass takes one slot and hops are free, rank
// after rank in the order of their clocks (the last rank first where they are
// equal). A rank that finds nothing to do rests until all do; so with one
// chunk it may run its forwards before backwards that would be there already.
//
// Not the order of the ZeroPP paper, which was not available: a
// reconstruction.
#pragma once

#include "sim/schedule/builder.h"
#include "sim/schedule/params.h"

namespace pipewright {

// Adds the passes of all ranks for units of `unit` microbatches; the last one
// may be shorter.
void AddUnitOrders(const ScheduleParams& params, int unit,
                   ScheduleBuilder& builder);

}  // namespace pipewright
