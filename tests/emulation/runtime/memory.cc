// Memory of devices and pinned memory, and what is copied and filled.
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/emulation/runtime/device_state.h"
#include "tests/emulation/runtime/settings.h"

namespace emulated {
namespace {

struct Block {
  size_t bytes = 0;
  void* mapped = nullptr;
  size_t mapped_bytes = 0;
  Kind kind = Kind::kDevice;
  int device = 0;
};
std::map<const char*, Block> blocks;
std::map<int, size_t> used;  // bytes of each device

// Alignment of every allocation (CUDA C++ programming guide, "Device Memory
// Accesses").
constexpr size_t kAlignment = 256;
constexpr size_t kPageBytes = 4096;

// A bus, a card's memory, and copies through the driver's own buffers.
constexpr double kPinnedRate = 25e9;
constexpr double kPageableRate = 6e9;
constexpr double kDeviceRate = 1.5e12;
constexpr double kFillRate = 3e12;

size_t DeviceBytes() {
  return static_cast<size_t>(Setting("EMULATION_MEMORY_MIB", 8192)) << 20;
}

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Filled with bits that are NaN. Its end, rounded up to 256 bytes, is the end
// of what may be touched.
cudaError_t Allocate(void** memory, size_t bytes, Kind kind) {
  const Call call;
  const int device = CurrentDevice();
  if (kind == Kind::kDevice) {
    if (used[device] + bytes > DeviceBytes()) {
      return Give(cudaErrorMemoryAllocation);
    }
    used[device] += bytes;
  }
  const size_t space = RoundUp(bytes, kAlignment);
  const size_t pages = RoundUp(space, kPageBytes);
  void* mapped = mmap(nullptr, pages + kPageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return Give(cudaErrorMemoryAllocation);
  char* const end = static_cast<char*>(mapped) + pages;
  mprotect(end, kPageBytes, PROT_NONE);
  if (!ClockOnly()) std::memset(end - space, 0xff, space);
  blocks[end - space] = {bytes, mapped, pages + kPageBytes, kind, device};
  *memory = end - space;
  return cudaSuccess;
}

cudaError_t Release(void* memory, Kind kind) {
  if (memory == nullptr) return cudaSuccess;
  Call call;
  const auto found = blocks.find(static_cast<char*>(memory));
  if (found == blocks.end() || found->second.kind != kind) {
    Violation("memory is freed that was not allocated so");
    return Give(cudaErrorInvalidValue);
  }
  // It waits for the device, as the real one does.
  const Block block = found->second;
  RunUntil(&call, "freeing", [&] { return Idle(block.device); });
  if (kind == Kind::kDevice) used[block.device] -= block.bytes;
  blocks.erase(static_cast<char*>(memory));
  // What still uses it fails at once.
  munmap(block.mapped, block.mapped_bytes);
  return cudaSuccess;
}

bool Fits(Kind kind, bool wants_device, size_t left, size_t bytes) {
  return (kind == Kind::kDevice) == wants_device &&
         (kind == Kind::kPageable || left >= bytes);
}

}  // namespace

Kind KindOf(const void* address, size_t* left, int* device) {
  const Call call;
  const char* at = static_cast<const char*>(address);
  if (left != nullptr) *left = 0;
  auto found = blocks.upper_bound(at);
  if (found == blocks.begin()) return Kind::kPageable;
  --found;
  const Block& block = found->second;
  if (at >= found->first + block.bytes) return Kind::kPageable;
  if (left != nullptr) {
    *left = block.bytes - static_cast<size_t>(at - found->first);
  }
  if (device != nullptr) *device = block.device;
  return block.kind;
}

}  // namespace emulated

using emulated::Call;
using emulated::Give;
using emulated::Kind;
using emulated::KindOf;
using emulated::Violation;

extern "C" {

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return emulated::Allocate(memory, bytes, Kind::kDevice);
}
cudaError_t cudaFree(void* memory) {
  return emulated::Release(memory, Kind::kDevice);
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return emulated::Allocate(memory, bytes, Kind::kPinned);
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return emulated::Allocate(memory, bytes, Kind::kPinned);
}
cudaError_t cudaFreeHost(void* memory) {
  return emulated::Release(memory, Kind::kPinned);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  if (KindOf(host, nullptr) != Kind::kPinned) {
    return Give(cudaErrorInvalidValue);
  }
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* left, size_t* total) {
  const Call call;
  *total = emulated::DeviceBytes();
  *left = *total - emulated::used[emulated::CurrentDevice()];
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes,
                            cudaStream_t stream) {
  const Call call;
  size_t left = 0;
  int device = 0;
  const Kind kind = KindOf(memory, &left, &device);
  if (kind == Kind::kPageable || left < bytes) {
    Violation("%zu bytes are filled where %zu are", bytes, left);
    return Give(cudaErrorInvalidValue);
  }
  if (kind == Kind::kDevice && device != emulated::DeviceOf(stream)) {
    Violation("memory of device %d is filled on a stream of device %d", device,
              emulated::DeviceOf(stream));
    return Give(cudaErrorInvalidValue);
  }
  emulated::Queue(stream, "fill",
                  1.5e-6 + static_cast<double>(bytes) / emulated::kFillRate,
                  [=] {
                    std::memset(memory, value, bytes);
                    return true;
                  });
  return cudaSuccess;
}

// Pageable memory: what is read is read at once, what is written waits for the
// stream (CUDA runtime API, "API synchronization behavior").
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  Call call;
  stream = emulated::StreamOf(stream);
  size_t to_left = 0;
  size_t from_left = 0;
  const Kind target = KindOf(to, &to_left);
  const Kind source = KindOf(from, &from_left);
  const bool to_device =
      kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device =
      kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!emulated::Fits(target, to_device, to_left, bytes) ||
      !emulated::Fits(source, from_device, from_left, bytes)) {
    Violation(
        "copy of kind %d of %zu bytes: from memory of kind %d (%zu left) "
        "to kind %d (%zu left)",
        static_cast<int>(kind), bytes, static_cast<int>(source), from_left,
        static_cast<int>(target), to_left);
    return Give(cudaErrorInvalidValue);
  }
  const bool pageable = target == Kind::kPageable || source == Kind::kPageable;
  if (stream->graph != nullptr && pageable) {
    return Give(cudaErrorStreamCaptureUnsupported);
  }
  std::shared_ptr<std::vector<char>> staged;
  if (source == Kind::kPageable) {
    const char* begin = static_cast<const char*>(from);
    staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
  }
  const double rate = kind == cudaMemcpyDeviceToDevice ? emulated::kDeviceRate
                      : pageable                       ? emulated::kPageableRate
                                                       : emulated::kPinnedRate;
  emulated::PutStep(stream, "copy", 2e-6 + static_cast<double>(bytes) / rate,
                    [=] {
                      std::memmove(to, staged ? staged->data() : from, bytes);
                      return true;
                    });
  if (target == Kind::kPageable) {
    emulated::RunUntil(&call, "a copy to pageable memory",
                       [=] { return stream->queue.empty(); });
    emulated::HostReaches(stream->now_s);
  }
  return cudaSuccess;
}

}  // extern "C"
