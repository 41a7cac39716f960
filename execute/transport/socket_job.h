// Processes without a common starter: each is told its number and a file
// (`execute --bootstrap file:PATH --rank R --ranks P`), and they find each
// other by what the first writes there (socket_meeting.h). Byte streams over
// TCP between all pairs, in the place of MPI (mpi/module.h).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "execute/transport/process_group.h"
#include "execute/transport/socket_meeting.h"

namespace pipewright {

// One in the life of a process. A process that ends without a word ends the
// job for the others: see ProcessGroup::ended_by. Error: kUnavailable with
// those that have not come or are lost; kInvalidArgument.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSocketJob(
    const SocketOptions& options);

}  // namespace pipewright
