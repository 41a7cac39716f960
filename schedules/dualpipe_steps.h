// Shared by DualPipe and DualPipeV: the eight steps of a rank, and the bubbles
// that they leave. Source of the steps: deepseek-ai/DualPipe 3da1bbe, step().
#pragma once

#include "sim/schedule/builder.h"
#include "sim/schedule/params.h"

namespace pipewright {

// One rank. Its work comes in two phases that run against each other: the two
// directions (DualPipe), or the two chunks of a V (DualPipeV).
struct DualPipeRank {
  // Chunk and direction of each phase; phase 0 is the one that enters nearer.
  struct Phase {
    int chunk = 0;
    int direction = 0;
  };
  Phase phases[2];
  int distance = 0;      // ranks between this one and the entry of phase 0
  int half = 1;          // ranks from that entry to the turn
  int microbatches = 0;  // in each phase, at least 2 * half
};

// Appends the order of `rank`: F, BW, split B and W, and joint (F&BW).
void AddDualPipeRank(int rank, const DualPipeRank& shape,
                     ScheduleBuilder& builder);

// The bubbles of both: a gap that each step of the fill leaves, and its source.

// F = B >= W, no hops, pairs that take as long as their passes; without blocks
// (pair=dependencies) F = B = W.
bool IsDualPipeBalanced(const ScheduleParams& params);

// F&BW + BW - 3W, in the unit of the costs; F without blocks.
double DualPipeGap(const ScheduleParams& params);

}  // namespace pipewright
