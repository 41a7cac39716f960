// Between whom `calibrate` measures transfers: threads of this process or,
// under mpirun, its processes, of which process 0 measures and the others serve
// it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/session.h"
#include "execute/mpi_transfers.h"
#include "execute/mpi_transport.h"

namespace pipewright {

class CalibrateTransport {
 public:
  // `name`: "threads", "mpi", or "" for what there is. Joins the job of mpirun.
  // Errors: kInvalidArgument for a name that cannot be here, kUnavailable
  // where MPI's library is missing.
  static absl::StatusOr<std::unique_ptr<CalibrateTransport>> Start(
      const std::string& name, const std::string& device);

  // Is this a process that only takes part in transfers?
  bool serves() const { return job_ != nullptr && job_->process() > 0; }
  absl::Status Serve() { return transfers_->Serve(); }

  // What process 0 measures with; refers to this object.
  void Put(CalibrateOptions* options);
  // Has mpirun ended the job?
  bool ended() const { return job_ != nullptr && !job_->ended_by().empty(); }

 private:
  CalibrateTransport() = default;

  std::unique_ptr<MpiJob> job_;  // outlives what lets the others go
  std::unique_ptr<MpiTransfers> transfers_;
};

}  // namespace pipewright
