#include "kernels/cuda/device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "kernels/cuda/functions.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/grouped_call.h"
#include "kernels/cuda/numa.h"
#include "kernels/cuda/nvml.h"
#include "kernels/cuda/part.h"
#include "kernels/cuda/sdpa.h"

namespace pipewright::cuda {
namespace {

thread_local std::string last_error;

template <size_t kSize>
void CopyText(const std::string& text, char (&to)[kSize]) {
  std::snprintf(to, kSize, "%s", text.c_str());
}

PwStatus Attribute(cudaDeviceAttr attribute, int32_t index, int* value) {
  PW_CUDA(cudaDeviceGetAttribute(value, attribute, index));
  return PW_OK;
}

PwStatus Describe(PwDevice* device) {
  cudaDeviceProp properties;
  PW_CUDA(cudaGetDeviceProperties(&properties, device->index));
  device->name = properties.name;
  device->cores = properties.multiProcessorCount;
  device->capability = 10 * properties.major + properties.minor;
  device->cache_bytes = properties.l2CacheSize;
  int shared = 0;
  PW_RETURN_IF_FAILED(Attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                device->index, &shared));
  device->shared_bytes = shared;
  if (device->capability < 80) {
    return Fail(PW_INVALID, device->name +
                                ": this build has kernels for compute "
                                "capability 8.0 and later only");
  }
  return PW_OK;
}

PwStatus Prepare(PwDevice* device, int32_t part, int32_t parts) {
  PW_CUDA(cudaSetDevice(device->index));
  PW_RETURN_IF_FAILED(Describe(device));
  if (parts > 1) {
    // Makes the primary context, which the part shares its memory with.
    PW_CUDA(cudaFree(nullptr));
    PW_RETURN_IF_FAILED(Part::Make(device->index, part, parts, &device->part));
    device->cores = device->part->cores();
    PW_RETURN_IF_FAILED(device->part->Use());
  }
  PW_CUDA(
      cudaStreamCreateWithFlags(&device->own.stream, cudaStreamNonBlocking));
  void* flag = nullptr;
  PW_CUDA(cudaHostAlloc(&flag, 2 * sizeof(uint32_t), cudaHostAllocMapped));
  device->hold_flag = static_cast<volatile uint32_t*>(flag);
  device->hold_flag[0] = 0;
  device->hold_flag[1] = 0;
  void* mapped = nullptr;
  PW_CUDA(cudaHostGetDevicePointer(&mapped, flag, 0));
  device->hold_flag_device = static_cast<uint32_t*>(mapped);
  char bus[32] = "";
  if (cudaDeviceGetPCIBusId(bus, sizeof(bus), device->index) == cudaSuccess) {
    device->nvml = Nvml::Open(bus);
    device->numa_node = NumaNodeOf(bus);
    // The thread that opens a device is the one that queues on it.
    device->bound = BindThread(device->numa_node);
  }
  device->gemm_plans = std::make_unique<GemmPlans>();
  device->grouped_calls = std::make_unique<GroupedCalls>();
  device->attention_plans = std::make_unique<AttentionPlans>();
  return PW_OK;
}

}  // namespace

const std::string& LastError() { return last_error; }

PwStatus Fail(PwStatus status, std::string message) {
  last_error = std::move(message);
  return status;
}

PwStatus FromCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return PW_OK;
  // This also clears an error that does not stick from the runtime's own
  // memory.
  cudaGetLastError();
  PwStatus status = PW_FAILED;
  if (error == cudaErrorMemoryAllocation) status = PW_NO_MEMORY;
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
      error == cudaErrorInvalidDevice) {
    status = PW_NO_DEVICE;
  }
  return Fail(status, std::string(what) + ": " + cudaGetErrorName(error) +
                          ", " + cudaGetErrorString(error));
}

PwStatus Enter(PwDevice* device) {
  last_error.clear();
  if (device->part != nullptr) return device->part->Use();
  PW_CUDA(cudaSetDevice(device->index));
  return PW_OK;
}

PwStatus Launched(const char* what) {
  return FromCuda(cudaGetLastError(), what);
}

PwStream* StreamOf(PwDevice* device, PwStream* stream) {
  return stream == nullptr ? &device->own : stream;
}

PwStatus OpenLane(PwDevice* device, size_t index) {
  while (device->lanes.size() <= index) {
    auto lane = std::make_unique<PwStream>();
    PW_CUDA(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking));
    device->lanes.push_back(std::move(lane));
  }
  // Event 0 forks, the others join a lane each.
  while (device->lane_events.size() <= index + 1) {
    cudaEvent_t event = nullptr;
    PW_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    device->lane_events.push_back(event);
  }
  return PW_OK;
}

Scratch::~Scratch() {
  for (void* buffer : buffers_) cudaFree(buffer);
}

PwStatus Scratch::Get(size_t bytes, void** memory) {
  if (bytes > bytes_ || buffers_.empty()) {
    // Twice as much as before at least, so that what is left behind stays
    // below what is used.
    const size_t wanted = std::max({bytes, 2 * bytes_, size_t{256}});
    void* buffer = nullptr;
    PW_CUDA(cudaMalloc(&buffer, wanted));
    buffers_.push_back(buffer);
    bytes_ = wanted;
  }
  *memory = buffers_.back();
  return PW_OK;
}

const char* Error() { return last_error.c_str(); }

int32_t DeviceCount() {
  last_error.clear();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    Fail(PW_NO_DEVICE,
         "no NVIDIA driver here (libcuda.so.1), or one that is older than "
         "this build's CUDA runtime needs");
    return 0;
  }
  if (FromCuda(error, "cudaGetDeviceCount") != PW_OK) return 0;
  return count;
}

PwStatus OpenPart(int32_t index, int32_t part, int32_t parts,
                  PwDevice** device) {
  *device = nullptr;
  const int32_t count = DeviceCount();
  if (count == 0) {
    if (last_error.empty()) last_error = "no CUDA device";
    return PW_NO_DEVICE;
  }
  if (index < 0 || index >= count) {
    return Fail(PW_NO_DEVICE, "no CUDA device " + std::to_string(index) +
                                  "; there are " + std::to_string(count));
  }
  if (parts < 1 || part < 0 || part >= parts) {
    return Fail(PW_INVALID, "no part " + std::to_string(part) + " of " +
                                std::to_string(parts));
  }
  auto opened = std::make_unique<PwDevice>();
  opened->index = index;
  PW_RETURN_IF_FAILED(Prepare(opened.get(), part, parts));
  *device = opened.release();
  return PW_OK;
}

PwStatus Open(int32_t index, PwDevice** device) {
  return OpenPart(index, 0, 1, device);
}

void Close(PwDevice* device) {
  if (device == nullptr || Enter(device) != PW_OK) return;
  ReleaseStreams(device);
  cudaDeviceSynchronize();
  if (device->bound) UnbindThread();
  delete device;
}

PwStatus Info(PwDevice* device, PwDeviceInfo* info) {
  PW_RETURN_IF_FAILED(Enter(device));
  *info = {};
  CopyText(device->name, info->name);
  if (device->nvml != nullptr) {
    CopyText(device->nvml->DriverVersion(), info->driver);
  }
  int runtime = 0;
  PW_CUDA(cudaRuntimeGetVersion(&runtime));
  CopyText("cudart " + std::to_string(runtime / 1000) + "." +
               std::to_string(runtime % 1000 / 10) + ", " +
               device->gemm_plans->Library() + ", " +
               device->attention_plans->Library(),
           info->libraries);
  info->types = 1 << PW_FP32 | 1 << PW_BF16;
  // e4m3 tensor cores: CUDA C++ programming guide, "Compute Capabilities".
  info->fp8_gemm = device->capability >= 89 ? 1 : 0;
  info->cores = device->cores;
  info->capability = device->capability;
  // The embedding's gradient is a sum of atomics, and so is cuDNN's dq.
  info->deterministic = 0;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  PW_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  info->memory_bytes = static_cast<int64_t>(total_bytes);
  info->free_bytes = static_cast<int64_t>(free_bytes);
  info->cache_bytes = device->cache_bytes;
  return PW_OK;
}

PwStatus State(PwDevice* device, PwDeviceState* state) {
  PW_RETURN_IF_FAILED(Enter(device));
  *state = {-1, -1, -1, -1, -1, -1, -1, -1};
  if (device->nvml != nullptr) device->nvml->Read(state);
  return PW_OK;
}

const char* Implementation(PwDevice* device) {
  return device->implementation.c_str();
}

}  // namespace pipewright::cuda

PwDevice::PwDevice() = default;

PwDevice::~PwDevice() {
  for (const auto& lane : lanes) cudaStreamDestroy(lane->stream);
  for (cudaEvent_t event : lane_events) cudaEventDestroy(event);
  if (own.stream != nullptr) cudaStreamDestroy(own.stream);
  if (hold_flag != nullptr) cudaFreeHost(const_cast<uint32_t*>(hold_flag));
}
