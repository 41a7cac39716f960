// What `calibrate --device cuda` measures between the GPUs of this process, or
// of mpirun's processes: a Transport for 2, 4, 8, ... GPUs and for all. It
// measures nothing itself. It runs a first transfer of each kind and size, so
// that one that cannot work is found before the calibration begins.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/transport/nccl/module.h"
#include "execute/transport/process_group.h"
#include "execute/transport/timed_transport.h"
#include "kernels/kernels.h"

namespace pipewright {

// `nccl` is from LoadNccl. `timeout_s` is that of each transfer: a rank that
// does not come ends it for all.
TimedTransports TransportsOverNccl(const absl::StatusOr<const PwNccl*>& nccl,
                                   const PwKernels* kernels, bool quick,
                                   double timeout_s = 60);

// The same between the processes of a job; this is process 0, and the others
// serve it (nccl_processes.h). The job outlives the transports.
TimedTransports TransportsOverNccl(ProcessGroup* job,
                                   const absl::StatusOr<const PwNccl*>& nccl,
                                   const PwKernels* kernels, bool quick,
                                   double timeout_s = 60);

}  // namespace pipewright
