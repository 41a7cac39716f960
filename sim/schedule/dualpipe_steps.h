// The eight steps that DualPipe and DualPipeV share. Source: deepseek-ai/
// DualPipe 3da1bbe, step().
#pragma once

#include "sim/schedule/builder.h"

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

}  // namespace pipewright
