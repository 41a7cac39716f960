// The sends and receives that a wait rule gives a schedule, as engines and the
// executor post them: compute_stream.h, without times.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/program/network.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/transfers.h"

namespace pipewright {

// [rank] the passes of an iteration with what the rank posts in front of them
// and behind them; what stands between two passes is posted together if `rule`
// does so. `rule` holds ranks. kInvalidArgument for a schedule that no such
// rule runs.
absl::StatusOr<std::vector<StepList>> PostedSteps(
    std::shared_ptr<const Schedule> schedule, WaitRule rule);

}  // namespace pipewright
