// What planners are measured by: each rank, as soon as it is free, runs B
// before F before W, and F only if memory allows; one stage a rank. Written for
// this alone: no queue of events, times as they come.
#pragma once

#include <vector>

#include "sim/schedule/params.h"
#include "sim/schedule/schedule.h"

namespace pipewright::testing {

struct GreedyList {
  std::vector<RankOrder> orders;
  double span_per_rank = 0;
  double span_global = 0;
};

// Within `limit` microbatches of activations on each rank, which count as
// PeakActivations counts them. Costs should be whole numbers: passes begin at
// sums of them.
GreedyList ListGreedily(const ScheduleParams& params, double limit);

}  // namespace pipewright::testing
