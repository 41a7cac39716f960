// One replay of a schedule with plain costs, for planners, closed forms and
// tests: pure delays, no optimizer, one iteration.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/schedule/params.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// Times in the unit of the costs.
struct ReplayTimes {
  std::vector<double> first_start;  // [rank]
  std::vector<double> last_end;     // [rank]
  double span_global = 0;    // first start on any rank to last end on any
  double span_per_rank = 0;  // longest of the ranks' own spans
  int64_t visits = 0;        // visits of ranks, until all had ended
};

// O, L and SYNC take no time here. Error: kFailedPrecondition with the
// blocked passes marked when the ranks wait for each other in a cycle.
absl::StatusOr<ReplayTimes> Replay(const Schedule& schedule,
                                   const PlanCosts& costs);

}  // namespace pipewright
