// Between whom `calibrate` measures transfers: threads of this process, its
// GPUs or, under mpirun, its processes, of which process 0 measures and the
// others serve it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/session.h"
#include "execute/mpi_transfers.h"
#include "execute/mpi_transport.h"
#include "execute/nccl/module.h"

namespace pipewright {

class CalibrateTransport {
 public:
  // `name`: "threads", "mpi", "nccl", or "" for what there is. Joins the job of
  // mpirun. Errors: kInvalidArgument for a name that cannot be here,
  // kUnavailable where MPI's library is missing.
  static absl::StatusOr<std::unique_ptr<CalibrateTransport>> Start(
      const std::string& name, const std::string& device);

  // Lets the other processes go; what Put has given must be gone.
  ~CalibrateTransport();

  // Is this a process that only takes part in transfers?
  bool serves() const { return job_ != nullptr && job_->process() > 0; }
  absl::Status Serve();

  // What process 0 measures with; refers to this object. Error: kUnavailable
  // where NCCL was asked for by name and cannot be; else that is a warning.
  absl::Status Put(const PwKernels* kernels, CalibrateOptions* options);
  // Has mpirun ended the job?
  bool ended() const { return job_ != nullptr && !job_->ended_by().empty(); }

 private:
  CalibrateTransport() = default;
  void TakeNccl(bool wanted);
  absl::Status PutNccl(const PwKernels* kernels, CalibrateOptions* options);

  // Of the GPUs here: loaded before anything else uses them.
  std::optional<absl::StatusOr<const PwNccl*>> nccl_;
  bool nccl_wanted_ = false;     // by name
  int gpu_ = 0;                  // of this process, under mpirun
  std::unique_ptr<MpiJob> job_;  // outlives what lets the others go
  std::unique_ptr<MpiTransfers> transfers_;
};

}  // namespace pipewright
