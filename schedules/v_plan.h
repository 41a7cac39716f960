// The adaptive V planner: tries building blocks and keeps the fastest schedule
// within a memory limit.
// Source: as v_blocks.h.
#pragma once

#include <optional>

#include "schedules/v_orders.h"

namespace pipewright {

struct VPlan {
  VOrders orders;
  double span;  // the longest of the ranks' own, in the unit of the costs
};

// `limit`: chunk activations a rank, from F to the end of W; more than 2pp
// help nothing. Nothing when no block fits.
std::optional<VPlan> PlanV(int pp, int microbatches, int limit,
                           const PlanCosts& costs);

// The smallest limit at which PlanV finds a schedule.
int SmallestVLimit(int pp, int microbatches);

}  // namespace pipewright
