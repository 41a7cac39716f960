// The part of VerifySchedule (verify.h) that looks at one rank alone: each pass
// exactly once, and after the passes of its rank that it needs. Ranks that wait
// for each other are not seen here.
#pragma once

#include "absl/status/status.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// kFailedPrecondition naming rank, position and pass. Time O(passes), memory
// at most a few bytes a pass of this rank, whatever sizes the schedule states.
absl::Status CheckRankOrder(const Schedule& schedule, int rank);

}  // namespace pipewright
