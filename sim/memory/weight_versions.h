// Which weights the passes of a pipeline that is never flushed work with. Knows
// no times.
#pragma once

#include <vector>

#include "sim/schedule/schedule.h"

namespace pipewright {

struct WeightVersions {
  // [rank] Optimizer steps between the weights that a forward is run on, or
  // predicted from, and those that its gradient changes.
  std::vector<int> staleness;
  // [rank] Sets of weights held at a time, a predicted one included.
  std::vector<int> versions;
};

// Staleness 0 and one version where the schedule is flushed.
WeightVersions WeightVersionsOf(const Schedule& schedule);

}  // namespace pipewright
