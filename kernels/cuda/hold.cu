// Holding streams. A kernel of one thread spins on a flag in host memory; it
// takes one slot of one multiprocessor. What is queued behind it must be
// fewer launches than the driver's queue takes (about a thousand), and every
// kernel in it must have been launched once before: the driver may load a
// kernel at its first launch only, and waits for the device to do so. In both
// cases the time-out below ends the hold, and release_streams says so.
#include "kernels/cuda/device.h"
#include "kernels/cuda/functions.h"
#include "kernels/cuda/launch.cuh"

namespace pipewright::cuda {
namespace {

// Words of the flag that host and device share.
constexpr int kReleased = 0;
constexpr int kTimedOut = 1;
// A host that has died must not hang the device: after this the work runs.
constexpr uint64_t kTimeoutNanoseconds = 10ull * 1000 * 1000 * 1000;

__global__ void HoldKernel(volatile uint32_t* flag, uint32_t until) {
  const uint64_t start = GlobalNanoseconds();
  // The difference is signed, so that the count may wrap.
  while (static_cast<int32_t>(flag[kReleased] - until) < 0) {
    if (GlobalNanoseconds() - start > kTimeoutNanoseconds) {
      flag[kTimedOut] = 1;
      __threadfence_system();
      return;
    }
    __nanosleep(200);
  }
}

}  // namespace

PwStatus HoldStream(PwDevice* device, PwStream* stream) {
  PW_RETURN_IF_FAILED(Enter(device));
  Launch(HoldKernel, 1, 1, 0, StreamOf(device, stream)->stream,
         device->hold_flag_device, device->released + 1);
  return Launched("hold_stream");
}

PwStatus ReleaseStreams(PwDevice* device) {
  PW_RETURN_IF_FAILED(Enter(device));
  device->hold_flag[kReleased] = ++device->released;
  if (device->hold_flag[kTimedOut] == 0) return PW_OK;
  device->hold_flag[kTimedOut] = 0;
  return Fail(PW_FAILED,
              "a held stream ran on by itself after 10 s: what was queued "
              "behind it waited for the device (a first launch, memory, or "
              "too many launches), and its times are wrong");
}

}  // namespace pipewright::cuda
