// A trace of our own (simulate --trace, execute --trace) as a job: one step
// from its first start to its last end, all iterations in it, because they
// have no border that all ranks share.
//
// An operation waits for
//   - the one before it on the compute stream of its rank; of a block (X&Y) the
//     first pass waits for the inputs of both, and who needs either waits for
//     the second;
//   - of a pass: the receive of its input, or the pass on another rank that
//     makes it where there is no message;
//   - of a send: its pass. A send and its receive are a group. Where transfers
//     block ranks (rendezvous, batched), the receive waits for what its rank
//     ran before the pass that needs it, and the sender's next pass waits for
//     the send; in time steps (stepped) it waits for what its rank had run when
//     it began, and the rank's next pass for it. Which receives between two
//     passes are of one step is not known, so that none waits for another;
//   - of everything else, and of passes with regard to it: what had ended on
//     each other stream of the rank before it began, which is the order as it
//     was recorded. The trace does not say which of these waits were meant.
// The n-th meetings of the members of a collective are a group.
#pragma once

#include "absl/status/statusor.h"
#include "sim/analysis/diagnose/job.h"
#include "sim/trace/trace_read.h"

namespace pipewright {

// Error: kInvalidArgument with the file, for a send without its receive and
// operations that wait for each other.
absl::StatusOr<MeasuredJob> JobOfTrace(const ReadTrace& trace);

}  // namespace pipewright
