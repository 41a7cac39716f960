#include "kernels/cuda/runtime.h"

extern "C" __attribute__((visibility("default"))) const PwCudaRuntime*
pw_cuda_runtime() {
  static const PwCudaRuntime table = {
      .abi = PW_CUDA_RUNTIME_ABI,
      .get_device_count = cudaGetDeviceCount,
      .set_device = cudaSetDevice,
      .get_last_error = cudaGetLastError,
      .get_error_string = cudaGetErrorString,
      .stream_priority_range = cudaDeviceGetStreamPriorityRange,
      .stream_create = cudaStreamCreateWithPriority,
      .stream_destroy = cudaStreamDestroy,
      .event_create = cudaEventCreateWithFlags,
      .event_record = cudaEventRecord,
      .event_query = cudaEventQuery,
      .event_elapsed_time = cudaEventElapsedTime,
      .event_destroy = cudaEventDestroy,
      .memcpy_async = cudaMemcpyAsync,
  };
  return &table;
}
