// libnvidia-ml: what kernels/cuda/nvml.cc reads of a card that does nothing
// else. Names and units are those of the NVML API reference manual.
#include <cstdio>
#include <cstdlib>

#include "tests/emulation/runtime/queue.h"

namespace {

// nvmlReturn_t
constexpr int kSuccess = 0;
constexpr int kNotFound = 6;

constexpr unsigned kClockSm = 1;  // nvmlClockType_t

int Give(unsigned value, unsigned* to) {
  *to = value;
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }

// Devices are on buses from 1 on (cudaDeviceGetPCIBusId).
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** card) {
  unsigned bus = 0;
  if (std::sscanf(id, "%*x:%x:", &bus) != 1 || bus < 1 ||
      bus > static_cast<unsigned>(emulated::Devices())) {
    return kNotFound;
  }
  static char cards[256];
  *card = &cards[bus];
  return kSuccess;
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "emulated");
  return kSuccess;
}
int nvmlDeviceGetClockInfo(void*, unsigned which, unsigned* mhz) {
  return Give(which == kClockSm ? 1980 : 2619, mhz);
}
int nvmlDeviceGetMaxClockInfo(void*, unsigned which, unsigned* mhz) {
  return nvmlDeviceGetClockInfo(nullptr, which, mhz);
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  return Give(312000, milliwatts);
}
int nvmlDeviceGetTemperature(void*, unsigned, unsigned* celsius) {
  return Give(45, celsius);
}
int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* generation) {
  return Give(5, generation);
}
int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* lanes) {
  return Give(16, lanes);
}
int nvmlDeviceGetCurrentClocksEventReasons(void*, unsigned long long* bits) {
  *bits = 0;
  return kSuccess;
}

}  // extern "C"
