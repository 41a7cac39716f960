// The CUDA runtime inside libpipewright_cuda.so, for the program's other
// modules that need it (libpipewright_nccl.so): a process has one runtime, and
// one current device for each thread. Names are those of the runtime API.
#ifndef PIPEWRIGHT_KERNELS_CUDA_RUNTIME_H_
#define PIPEWRIGHT_KERNELS_CUDA_RUNTIME_H_

#include <cuda_runtime_api.h>

#define PW_CUDA_RUNTIME_ABI 1

struct PwCudaRuntime {
  int abi;
  decltype(&::cudaGetDeviceCount) get_device_count;
  decltype(&::cudaSetDevice) set_device;
  decltype(&::cudaGetLastError) get_last_error;
  decltype(&::cudaGetErrorString) get_error_string;
  decltype(&::cudaDeviceGetStreamPriorityRange) stream_priority_range;
  decltype(&::cudaStreamCreateWithPriority) stream_create;
  decltype(&::cudaStreamDestroy) stream_destroy;
  decltype(&::cudaEventCreateWithFlags) event_create;
  decltype(&::cudaEventRecord) event_record;
  decltype(&::cudaEventQuery) event_query;
  cudaError_t (*event_elapsed_time)(float* milliseconds, cudaEvent_t from,
                                    cudaEvent_t to);
  decltype(&::cudaEventDestroy) event_destroy;
  decltype(&::cudaMemcpyAsync) memcpy_async;
};

// What the library exports.
extern "C" const PwCudaRuntime* pw_cuda_runtime();

#endif  // PIPEWRIGHT_KERNELS_CUDA_RUNTIME_H_
