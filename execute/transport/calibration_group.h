// The ends of the transfers that `calibrate` measures: threads of this process,
// its GPUs or the processes of a job; then process 0 measures and the others
// serve it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/transport/nccl/module.h"
#include "execute/transport/process_group.h"
#include "execute/transport/timed_transport.h"
#include "kernels/kernels.h"

namespace pipewright {

// MPI's own transfers between the processes of a job, started and timed by
// process 0: what calibration measures under mpirun. The other processes sleep
// in between and leave the cores to the other measurements of process 0.
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

class CalibrationGroup {
 public:
  // `name`: one of MeasuredTransports(), or "" for what there is. `job`: one of
  // sockets, whose processes have a GPU each; null: joins the job of mpirun, if
  // there is one. Errors: kInvalidArgument for a name that cannot be here,
  // kUnavailable where MPI's library is missing.
  static absl::StatusOr<std::unique_ptr<CalibrationGroup>> Start(
      const std::string& name, const std::string& device,
      std::unique_ptr<ProcessGroup> job);

  // Lets the other processes go; the objects that Transports returned must be
  // gone.
  ~CalibrationGroup();

  // Is this a process that only takes part in transfers?
  bool serves() const { return job_ != nullptr && job_->process() > 0; }
  absl::Status Serve();

  // What process 0 measures with; refers to this object. Error: kUnavailable
  // where NCCL was asked for by name and cannot be; else that is a warning.
  absl::StatusOr<TimedTransports> Transports(const PwKernels* kernels,
                                             bool quick);
  // Has something ended the job?
  bool ended() const { return job_ != nullptr && !job_->ended_by().empty(); }

 private:
  CalibrationGroup() = default;
  void TakeNccl(bool wanted);
  absl::StatusOr<TimedTransports> OverNccl(const PwKernels* kernels,
                                           bool quick);

  // NCCL, where GPUs transfer. It is loaded before anything else uses them.
  std::optional<absl::StatusOr<const PwNccl*>> nccl_;
  bool nccl_wanted_ = false;           // by name
  int gpu_ = 0;                        // for this process, in a job
  std::unique_ptr<ProcessGroup> job_;  // outlives what lets the others go
  std::unique_ptr<MpiTransfers> transfers_;
};

}  // namespace pipewright
