#include <algorithm>

#include "kernels/cuda/device.h"
#include "kernels/cuda/functions.h"
#include "kernels/cuda/numa.h"

namespace pipewright::cuda {

std::string FreeText() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  return std::to_string(free_bytes) + " of " + std::to_string(total_bytes) +
         " bytes are free";
}

PwStatus Allocate(PwDevice* device, size_t bytes, void** memory) {
  *memory = nullptr;
  PW_RETURN_IF_FAILED(Enter(device));
  const cudaError_t error = cudaMalloc(memory, std::max<size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return Fail(PW_NO_MEMORY, std::to_string(bytes) +
                                  " bytes of device memory asked for, " +
                                  FreeText());
  }
  return FromCuda(error, "cudaMalloc");
}

void Release(PwDevice* device, void* memory) {
  if (memory != nullptr && Enter(device) == PW_OK) cudaFree(memory);
}

PwStatus AllocateHost(PwDevice* device, size_t bytes, void** memory) {
  *memory = nullptr;
  PW_RETURN_IF_FAILED(Enter(device));
  // Else its pages lie where this thread happens to run.
  const NearNode near(device->numa_node);
  PW_CUDA(cudaMallocHost(memory, std::max<size_t>(bytes, 1)));
  return PW_OK;
}

void ReleaseHost(PwDevice* device, void* memory) {
  if (memory != nullptr && Enter(device) == PW_OK) cudaFreeHost(memory);
}

PwStatus Zero(PwDevice* device, PwStream* stream, void* memory, size_t bytes) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (bytes == 0) return PW_OK;
  PW_CUDA(cudaMemsetAsync(memory, 0, bytes, StreamOf(device, stream)->stream));
  return PW_OK;
}

PwStatus Copy(PwDevice* device, PwStream* stream, PwCopy kind, void* to,
              const void* from, size_t bytes) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (bytes == 0) return PW_OK;
  cudaMemcpyKind direction = cudaMemcpyDeviceToDevice;
  if (kind == PW_HOST_TO_DEVICE) direction = cudaMemcpyHostToDevice;
  if (kind == PW_DEVICE_TO_HOST) direction = cudaMemcpyDeviceToHost;
  PW_CUDA(cudaMemcpyAsync(to, from, bytes, direction,
                          StreamOf(device, stream)->stream));
  return PW_OK;
}

}  // namespace pipewright::cuda
