// MPI's own transfers between the processes of a job, started and timed by
// process 0: what calibration measures under mpirun. The other processes sleep
// in between and leave the cores to the other measurements of process 0.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/transport/process_group.h"

namespace pipewright {

class MpiTransfers {
 public:
  // The job has at least two processes.
  explicit MpiTransfers(ProcessGroup* job);
  // On process 0 it ends what the others do.
  ~MpiTransfers();
  MpiTransfers(const MpiTransfers&) = delete;
  MpiTransfers& operator=(const MpiTransfers&) = delete;

  // Process 0: seconds of one transfer on the slowest process, the mean over
  // `repeats` in a row. Error: kInternal, what MPI says.
  absl::StatusOr<double> Time(PwTransfer kind, int64_t bytes, int repeats);

  // The others: does what process 0 says until it ends. Error: kInternal when
  // the job is ended from outside before.
  absl::Status Serve();

 private:
  ProcessGroup& job_;
};

}  // namespace pipewright
