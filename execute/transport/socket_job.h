// Processes without a common starter: each is told its number and a file
// (`execute --bootstrap file:PATH --rank R --ranks P`), and they find each
// other by what the first writes there. Byte streams over TCP between all
// pairs, in the place of MPI (mpi/module.h).
//
// PATH holds, written at once by a rename and readable by its owner only, a
// number that was drawn for this job and where process 0 listens; PATH.R the
// same of process R. Both go when all have come. A process that does not know
// the number is refused, so the files of an earlier job do no harm.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "execute/transport/process_group.h"

namespace pipewright {

struct SocketOptions {
  std::string path;
  int process = 0;
  int processes = 1;
  double timeout_s = 60;  // for all to come
};

// One in the life of a process. A process that ends without a word ends the
// job for the others: see ProcessGroup::ended_by. Error: kUnavailable with
// those that have not come; kInvalidArgument.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSocketJob(
    const SocketOptions& options);

}  // namespace pipewright
