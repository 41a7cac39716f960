// Building blocks of the adaptive V planner: six slots a rank that repeat, and
// how they shift from rank to rank. No times, no warm-up: v_plan.h makes
// schedules of them.
// Source: the authors' planner for Pipeline Parallelism with Controllable
// Memory, arXiv 2405.15362, section 4.
#pragma once

#include <array>
#include <vector>

#include "schedules/v_orders.h"

namespace pipewright {

// F.0 of rank 0 is in slot 0 and F.1, B.1, B.0 in `row`, modulo the period.
// From rank to rank F.0 and B.1 come `near` slots later up to rank `turn`,
// `far` slots later from there on; F.1 and B.0 one slot earlier.
struct VBlock {
  static constexpr int kPeriod = 6;
  std::array<int, 3> row;
  int near;
  int far;
  int turn;
};

// First slot of each kind on each rank, [rank][kind]: every pass after its
// producer, W in the first slot after its B in which no other kind repeats.
using VBlockSlots = std::vector<std::array<int, kVKinds>>;
void PlaceVBlock(const VBlock& block, int pp, VBlockSlots* slots);

// Chunk activations of the fullest rank once the block has repeated often.
int VBlockPeak(const VBlockSlots& slots);

// Every block in which no two passes meet, in the planner's order; of blocks
// that are alike on all ranks only the first.
std::vector<VBlock> AllVBlocks(int pp);

}  // namespace pipewright
