#include "execute/transport/nccl_device.h"

#include <stdlib.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

// The index of a process within its machine, from 0: Open MPI, MPICH and Intel
// MPI, Slurm, torchrun.
constexpr const char* kLocalNumbers[] = {"OMPI_COMM_WORLD_LOCAL_RANK",
                                         "MPI_LOCALRANKID", "SLURM_LOCALID",
                                         "LOCAL_RANK"};

}  // namespace

absl::StatusOr<int> DeviceOfProcess(const PwNccl& nccl, int process) {
  const int devices = nccl.device_count();
  if (devices < 1) {
    return absl::UnavailableError(
        absl::StrCat("--transport nccl: no CUDA device",
                     devices < 0 ? ": " : "", devices < 0 ? nccl.error() : ""));
  }
  int local = process;
  for (const char* const variable : kLocalNumbers) {
    const char* const value = getenv(variable);
    if (value != nullptr && absl::SimpleAtoi(value, &local)) break;
  }
  return local % devices;
}

}  // namespace pipewright
