// What the language of CUDA adds to C++, for .cu files: the one place that
// knows whether they are compiled by nvcc, or as C++ for a machine without a
// GPU (tests/emulation).
#ifndef PIPEWRIGHT_KERNELS_CUDA_LAUNCH_CUH_
#define PIPEWRIGHT_KERNELS_CUDA_LAUNCH_CUH_

#include <cstddef>
#include <cstdint>

#ifdef PIPEWRIGHT_EMULATED_CUDA

// Found by the build of tests/emulation only.
#include "emulated_cuda.h"

namespace pipewright::cuda {

using emulated::DynamicShared;
using emulated::GlobalNanoseconds;
using emulated::Launch;
using emulated::Shared;

}  // namespace pipewright::cuda

#else

#include <cuda_runtime.h>

namespace pipewright::cuda {

// Queues `kernel` with `shared` bytes of dynamic shared memory. What is wrong
// with the launch is for Launched (device.h).
template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
            cudaStream_t stream, const Arguments&... arguments) {
  kernel<<<grid, block, shared, stream>>>(
      static_cast<Parameters>(arguments)...);
}

// Shared memory of a kernel; two of one type have different numbers.
template <typename T, int kNumber = 0>
__device__ inline T& Shared() {
  __shared__ T memory;
  return memory;
}

// The dynamic shared memory of the block, aligned to 16 bytes.
__device__ inline float* DynamicShared() {
  extern __shared__ float4 dynamic_shared[];
  return reinterpret_cast<float*>(dynamic_shared);
}

// The device's clock.
__device__ inline uint64_t GlobalNanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace pipewright::cuda

#endif

#endif  // PIPEWRIGHT_KERNELS_CUDA_LAUNCH_CUH_
