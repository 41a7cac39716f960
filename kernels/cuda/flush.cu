// Empties the last-level cache between timings.
#include "kernels/cuda/device.h"
#include "kernels/cuda/functions.h"
#include "kernels/cuda/launch.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kFlushThreads = 256;

// Reads only: lines that were written here would be written back to memory
// inside of the kernel that is timed next. The buffer is all zeros, so that
// nothing is ever stored; the compiler cannot know.
__global__ void ReadKernel(const uint4* from, int64_t count, uint32_t* never) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  uint32_t bits = 0;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       at < count; at += step) {
    const uint4 value = from[at];
    bits |= value.x | value.y | value.z | value.w;
  }
  if (bits != 0) *never = bits;
}

}  // namespace

PwStatus FlushCache(PwDevice* device, PwStream* stream) {
  PW_RETURN_IF_FAILED(Enter(device));
  // Twice the cache: the replacement is not strictly by age.
  const size_t bytes = static_cast<size_t>(2 * device->cache_bytes);
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  void* memory = nullptr;
  PW_RETURN_IF_FAILED(device->flush.Get(bytes, &memory));
  if (memory != device->flushed_with) {
    PW_CUDA(cudaMemsetAsync(memory, 0, bytes, queue));
    device->flushed_with = memory;
  }
  const auto count = static_cast<int64_t>(bytes / sizeof(uint4));
  if (count == 0) return PW_OK;
  Launch(ReadKernel, 8 * device->cores, kFlushThreads, 0, queue,
         static_cast<const uint4*>(memory), count,
         static_cast<uint32_t*>(memory));
  return Launched("flush_cache");
}

}  // namespace pipewright::cuda
