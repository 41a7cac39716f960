// The fixed rule of V-Min and V-Half: repeat a building block, fold W into idle
// slots, move warm-up and cool-down to the left. Plans on a grid of slots with
// F = B = W = 1 and no hops, whatever the real costs are. Source: Pipeline
// Parallelism with Controllable Memory, arXiv 2405.15362, section 4, and the
// authors' zero-bubble-pipeline-parallelism repository.
#pragma once

#include <array>
#include <vector>

#include "schedules/v_orders.h"

namespace pipewright {

// `block[rank]`: slots of F.0, F.1, B.1, B.0 of microbatch 0; the others
// follow every kVBlockSlots. No two may meet. Time O(pp * (microbatches + pp)
// * a few); memory about 10 bytes a slot.
inline constexpr int kVBlockSlots = 6;
VOrders GreedyV(int microbatches, const std::vector<std::array<int, 4>>& block);

}  // namespace pipewright
