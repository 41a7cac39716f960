// Devices, errors, and launches of kernels.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tests/emulation/runtime/block.h"
#include "tests/emulation/runtime/device_state.h"
#include "tests/emulation/runtime/settings.h"

namespace emulated {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

// CUDA C++ programming guide, "Technical Specifications per Compute
// Capability", of 9.0.
constexpr int kMostThreads = 1024;
constexpr unsigned kMostDown = 65535;  // for a grid's y and z
constexpr unsigned kMostAcross = 2147483647;
constexpr size_t kSharedBytes = size_t{48} << 10;  // without asking for more
constexpr int kMostSharedBytes = 227 << 10;
constexpr int kCores = 132;

// Dynamic shared memory that kernels may have.
std::map<const void*, size_t>& SharedLimits() {
  static std::map<const void*, size_t> limits;
  return limits;
}

bool Allowed(const KernelCall& call) {
  const int64_t threads =
      static_cast<int64_t>(call.block.x) * call.block.y * call.block.z;
  const auto limit = SharedLimits().find(call.kernel);
  const size_t shared =
      limit == SharedLimits().end() ? kSharedBytes : limit->second;
  return threads >= 1 && threads <= kMostThreads && call.block.z <= 64 &&
         call.grid.x >= 1 && call.grid.y >= 1 && call.grid.z >= 1 &&
         call.grid.x <= kMostAcross && call.grid.y <= kMostDown &&
         call.grid.z <= kMostDown && call.dynamic_bytes <= shared;
}

// How long it might take: nothing is known of what it reads, so 1 us for every
// two blocks of 256 threads a multiprocessor.
double SecondsOf(const KernelCall& call) {
  const double threads = static_cast<double>(call.block.x) * call.block.y *
                         call.block.z * call.grid.x * call.grid.y * call.grid.z;
  return 3e-6 + threads / 256 / (2 * kCores) * 1e-6;
}

}  // namespace

cudaError_t Give(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

int CurrentDevice() { return current_device; }
int Cores() { return kCores; }
int Devices() {
  static const int devices = static_cast<int>(Setting("EMULATION_DEVICES", 1));
  return devices;
}

cudaError_t MakeCurrent(int device) {
  if (device < 0 || device >= Devices()) return Give(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

void CheckPointer(const std::string& launch, int argument,
                  const void* pointer) {
  if (pointer == nullptr) return;
  int device = 0;
  const Kind kind = KindOf(pointer, nullptr, &device);
  if (kind == Kind::kPageable) {
    Violation("%s: argument %d is a pointer of the host", launch.c_str(),
              argument);
  } else if (kind == Kind::kDevice && device != current_device) {
    Violation(
        "%s: argument %d is memory of device %d, and device %d is current",
        launch.c_str(), argument, device, current_device);
  }
}

void LaunchKernel(const KernelCall& call, cudaStream_t stream) {
  const Call lock;
  stream = StreamOf(stream);
  if (stream->device != current_device) {
    Violation("%s: a stream of device %d, and device %d is current",
              call.name.c_str(), stream->device, current_device);
    Give(cudaErrorInvalidResourceHandle);
    return;
  }
  if (!Allowed(call)) {
    std::fprintf(stderr,
                 "emulation: %s: no launch of %u x %u x %u blocks of %u x %u x "
                 "%u threads with %zu bytes\n",
                 call.name.c_str(), call.grid.x, call.grid.y, call.grid.z,
                 call.block.x, call.block.y, call.block.z, call.dynamic_bytes);
    Give(cudaErrorInvalidConfiguration);
    return;
  }
  // What holds a stream (kernels/cuda/hold.cu) does so without arithmetic too.
  const bool skipped =
      ClockOnly() && call.name.find("hold.cu") == std::string::npos;
  Put(stream, {call.name, SecondsOf(call), [call, skipped]() -> Step {
                 if (skipped) return [] { return true; };
                 auto kernel = std::make_shared<Kernel>(call);
                 return [kernel] { return kernel->Step(); };
               }});
}

}  // namespace emulated

using emulated::Call;
using emulated::Give;

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(emulated::last_error, cudaSuccess);
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    default:
      return "another error of the emulation";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  text = "error " + std::to_string(static_cast<int>(error));
  return text.c_str();
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = emulated::Devices();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return emulated::MakeCurrent(device); }

cudaError_t cudaGetDevice(int* device) {
  *device = emulated::CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  const auto capability =
      static_cast<int>(emulated::Setting("EMULATION_CAPABILITY", 90));
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name),
                "Emulated GPU of sm_%d", capability);
  properties->major = capability / 10;
  properties->minor = capability % 10;
  properties->multiProcessorCount = emulated::kCores;
  // Small: it is read from end to end between timings.
  properties->l2CacheSize = 1 << 20;
  size_t left = 0;
  return cudaMemGetInfo(&left, &properties->totalGlobalMem);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = emulated::kMostSharedBytes;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = emulated::kCores;
      return cudaSuccess;
    default:
      emulated::Violation("attribute %d of a device is not emulated",
                          static_cast<int>(attribute));
      return Give(cudaErrorInvalidValue);
  }
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel,
                                 cudaFuncAttribute attribute, int value) {
  const Call call;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize ||
      value > emulated::kMostSharedBytes) {
    return Give(cudaErrorInvalidValue);
  }
  emulated::SharedLimits()[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}

}  // extern "C"
