// Is it a schedule at all? Every pass exactly once, in an order that can run:
// the check behind exit code 4.
#pragma once

#include "absl/status/status.h"
#include "sim/schedule/grid.h"  // BlockedGrid, for all who report deadlocks
#include "sim/schedule/schedule.h"

namespace pipewright {

// kFailedPrecondition when for some stage and direction
//   - F of a (microbatch, slice) is missing or doubled,
//   - its backward is not exactly one BW, or one B and one W,
//   - R, O, L stand doubled, before F or behind the backward that needs them,
//   - FREE stands anywhere but between an O and its L,
//   - on one rank B stands before F, W before B, or slices run backwards,
//   - a joint pair is no pair of one F and one backward,
// or when the ranks wait for each other in a cycle. Where the backward rule is
// kNone any backward is one too many. The message names file and line (of a
// schedule that was read), rank, position and pass; for a cycle it carries the
// orders with each rank's blocked pass marked.
// Time O(passes); memory two bits a pass.
absl::Status VerifySchedule(const Schedule& schedule);

}  // namespace pipewright
