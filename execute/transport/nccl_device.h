// Which GPU of its machine a process uses.
#pragma once

#include "absl/status/statusor.h"
#include "execute/transport/nccl/module.h"

namespace pipewright {

// By the index of the process within its machine, which its starter says.
// Error: kUnavailable without a GPU.
absl::StatusOr<int> DeviceOfProcess(const PwNccl& nccl, int process);

}  // namespace pipewright
