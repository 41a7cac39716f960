// The adaptive V planner: tries building blocks and keeps the fastest schedule
// within a memory limit.
// Source: as v_blocks.h; how a few of many blocks are chosen is our own.
#pragma once

#include <cstdint>
#include <optional>

#include "schedules/v_orders.h"

namespace pipewright {

struct VPlan {
  VOrders orders;
  double span;  // the longest of the ranks' own, in the unit of the costs
};

// `limit`: chunk activations a rank, from F to the end of W; more than 2pp
// help nothing. Nothing when no block fits. The first of the fastest wins.
//
// Up to `max_passes` passes over all blocks every one is tried, and up to
// eight ranks. Beyond, a plan for eight ranks says which blocks come first,
// and as many are tried as the passes allow, but at least four. A pass takes
// about 50 ns.
std::optional<VPlan> PlanV(int pp, int microbatches, int limit,
                           const PlanCosts& costs, int64_t max_passes);

// The smallest limit at which a block fits.
int SmallestVLimit(int pp, int microbatches);

}  // namespace pipewright
