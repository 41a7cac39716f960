// Units of pp microbatches that run through a pipeline in opposite
// directions, pp/2 in each: what BitPipe and Chimera share.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/params.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// OK where pp is even and divides microbatches, with `vpp` chunks and one
// slice. Error: kInvalidArgument with the nearest values that work.
absl::Status CheckBidirectionalUnits(absl::string_view schedule,
                                     const ScheduleParams& params, int vpp);

// Appends unit number `unit` of one rank where the directions are Vs of two
// chunks: all its forwards, or all its full backwards (`kind`). `own` is the
// direction that enters on this half of the ranks, `ahead` how many of its
// `half` microbatches come first. Source: wuhouming/BitPipe 6fb0e22f.
void AddVUnit(PassKind kind, int own, int ahead, int half, int unit,
              RankOrder* order);

// (p-2) [max(F,B+W) + (m/p-1)|B+W-F|], the global bubble of units of one
// chunk a rank and direction; no hops. Source: arXiv 2107.06925 for B+W = F and
// for m = p, the rest fitted to replays.
double UnitsBubble(const ScheduleParams& params);

}  // namespace pipewright
