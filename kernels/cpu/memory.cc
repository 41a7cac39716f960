// The device, its memory, and clocks: the calling thread's CPU time, which a
// busy neighbour does not lengthen.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cpu/bf16_gemm.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/free_memory.h"
#include "kernels/onednn/module.h"

struct PwEvent {
  double seconds;
};

namespace pipewright {
namespace {

// The value of a "key : value" line of /proc/cpuinfo; "" when not there.
std::string CpuInfo(const char* key) {
  FILE* file = fopen("/proc/cpuinfo", "r");
  if (file == nullptr) return "";
  char line[512];
  std::string value;
  while (value.empty() && fgets(line, sizeof(line), file) != nullptr) {
    const char* colon = strchr(line, ':');
    if (strncmp(line, key, strlen(key)) != 0 || colon == nullptr) continue;
    value = colon + 1;
    value.erase(0, value.find_first_not_of(" \t"));
    value.erase(value.find_last_not_of(" \n") + 1);
  }
  fclose(file);
  return value;
}

int64_t TotalMemory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

int64_t CacheBytes() {
  int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes <= 0) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? bytes : 0;
}

int32_t DeviceCount() { return 1; }

PwStatus Open(int32_t index, PwDevice** device) {
  if (index != 0) {
    return Fail(PW_NO_DEVICE, "cpu has device 0 only, not %d", index);
  }
  const CpuChoice choice = ChooseCpu();
  if (!choice.problem.empty()) {
    return Fail(PW_INVALID, "%s", choice.problem.c_str());
  }
#ifdef PIPEWRIGHT_ONEDNN
  const char* problem = nullptr;
  if (OneDnn(&problem) == nullptr) return Fail(PW_NO_DEVICE, "%s", problem);
#endif
  *device = new PwDevice(*choice.loops, choice.bf16);
  return PW_OK;
}

void Close(PwDevice* device) { delete device; }

PwStatus Info(PwDevice* device, PwDeviceInfo* info) {
  *info = PwDeviceInfo{};
  const std::string name = CpuInfo("model name");
  snprintf(info->name, sizeof(info->name), "%s",
           name.empty() ? "CPU" : name.c_str());
  snprintf(info->libraries, sizeof(info->libraries), "%s",
           GemmLibrary().c_str());
  info->types = 1 << PW_FP32;
  if (device->bf16) info->types |= 1 << PW_BF16;
  info->fp8_gemm = 2;
  info->cores = sysconf(_SC_NPROCESSORS_ONLN);
  info->deterministic = 1;
  info->memory_bytes = TotalMemory();
  info->free_bytes = FreeMemory();
  info->cache_bytes = CacheBytes();
  return PW_OK;
}

PwStatus State(PwDevice*, PwDeviceState* state) {
  *state = {-1, -1, -1, -1, -1, -1, -1, -1};
  const std::string clock = CpuInfo("cpu MHz");
  if (!clock.empty()) state->clock_mhz = atof(clock.c_str());
  return PW_OK;
}

const char* Implementation(PwDevice* device) {
  return device->implementation.c_str();
}

PwStatus Allocate(PwDevice*, size_t bytes, void** memory) {
  // Large pages where they fit: fewer misses of address translation.
  constexpr size_t kLargePage = size_t{2} << 20;
  const bool large = bytes >= 2 * kLargePage;
  *memory = nullptr;
  // Linux hands out memory that it does not have; the user wants to know that
  // now.
  const int64_t there = FreeMemory();
  if (there >= 0 && bytes > static_cast<size_t>(there)) {
    return Fail(PW_NO_MEMORY, "%zu bytes asked for, %lld are free", bytes,
                static_cast<long long>(there));
  }
  if (posix_memalign(memory, large ? kLargePage : 64, bytes) != 0) {
    *memory = nullptr;
    return Fail(PW_NO_MEMORY, "no memory for %zu bytes", bytes);
  }
  if (large) madvise(*memory, bytes, MADV_HUGEPAGE);
  return PW_OK;
}

void Release(PwDevice*, void* memory) { free(memory); }

PwStatus Zero(PwDevice*, PwStream*, void* memory, size_t bytes) {
  if (bytes > 0) memset(memory, 0, bytes);
  return PW_OK;
}

PwStatus Copy(PwDevice*, PwStream*, PwCopy, void* to, const void* from,
              size_t bytes) {
  if (bytes > 0) memcpy(to, from, bytes);
  return PW_OK;
}

PwStatus CreateStream(PwDevice*, int32_t, PwStream** stream) {
  *stream = nullptr;
  return PW_OK;
}

void DestroyStream(PwDevice*, PwStream*) {}

PwStatus Nothing(PwDevice*, PwStream*) { return PW_OK; }

PwStatus ReleaseStreams(PwDevice*) { return PW_OK; }

PwStatus CreateEvent(PwDevice*, PwEvent** event) {
  *event = new PwEvent{0};
  return PW_OK;
}

void DestroyEvent(PwDevice*, PwEvent* event) { delete event; }

PwStatus Record(PwDevice*, PwStream*, PwEvent* event) {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  event->seconds = now.tv_sec + 1e-9 * now.tv_nsec;
  return PW_OK;
}

PwStatus Wait(PwDevice*, PwStream*, PwEvent*) { return PW_OK; }

PwStatus Query(PwDevice*, PwEvent*, int32_t* done) {
  *done = 1;
  return PW_OK;
}

PwStatus Elapsed(PwDevice*, PwEvent* from, PwEvent* to, double* seconds) {
  *seconds = to->seconds - from->seconds;
  return PW_OK;
}

PwStatus FlushCache(PwDevice* device, PwStream*) {
  if (device->flushed.empty()) {
    // Some virtual machines report the whole host's cache.
    const int64_t most = TotalMemory() / 8;
    const int64_t cache = CacheBytes();
    device->flushed.resize(cache < most ? cache : most);
  }
  if (device->flushed.empty()) return PW_OK;
  const char value = device->flushed[0] + 1;
  memset(device->flushed.data(), value, device->flushed.size());
  return PW_OK;
}

PwStatus NoGraphs() {
  return Fail(PW_INVALID, "the cpu backend has no graphs");
}
PwStatus BeginGraph(PwDevice*, PwStream*) { return NoGraphs(); }
PwStatus EndGraph(PwDevice*, PwStream*, PwGraph**) { return NoGraphs(); }
PwStatus LaunchGraph(PwDevice*, PwStream*, PwGraph*) { return NoGraphs(); }
void DestroyGraph(PwDevice*, PwGraph*) {}

}  // namespace

void AddMemory(PwKernels* kernels) {
  kernels->device_count = DeviceCount;
  kernels->open = Open;
  kernels->close = Close;
  kernels->info = Info;
  kernels->state = State;
  kernels->implementation = Implementation;
  kernels->allocate = Allocate;
  kernels->release = Release;
  kernels->allocate_host = Allocate;
  kernels->release_host = Release;
  kernels->zero = Zero;
  kernels->copy = Copy;
  kernels->create_stream = CreateStream;
  kernels->destroy_stream = DestroyStream;
  kernels->synchronize = Nothing;
  kernels->create_event = CreateEvent;
  kernels->destroy_event = DestroyEvent;
  kernels->record = Record;
  kernels->wait = Wait;
  kernels->query = Query;
  kernels->elapsed = Elapsed;
  kernels->hold_stream = Nothing;
  kernels->release_streams = ReleaseStreams;
  kernels->flush_cache = FlushCache;
  kernels->begin_graph = BeginGraph;
  kernels->end_graph = EndGraph;
  kernels->launch_graph = LaunchGraph;
  kernels->destroy_graph = DestroyGraph;
}

}  // namespace pipewright
