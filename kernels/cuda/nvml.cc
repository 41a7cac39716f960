#include "kernels/cuda/nvml.h"

#include <dlfcn.h>

namespace pipewright::cuda {
namespace {

// Entry points and constants as in the NVML API reference manual (docs.nvidia
// .com/deploy/nvml-api, "Device Queries"): every function returns 0 for
// success, nvmlDevice_t is a pointer.
constexpr unsigned kClockSm = 1;         // NVML_CLOCK_SM
constexpr unsigned kClockMemory = 2;     // NVML_CLOCK_MEM
constexpr unsigned kTemperatureGpu = 0;  // NVML_TEMPERATURE_GPU

using Card = void*;
using Plain = int (*)();
using HandleByPci = int (*)(const char*, Card*);
using DriverText = int (*)(char*, unsigned);
using ReadNumber = int (*)(Card, unsigned*);
using ReadNumberOf = int (*)(Card, unsigned, unsigned*);
using ReadBits = int (*)(Card, unsigned long long*);

template <typename Function>
Function Find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

std::unique_ptr<Nvml> Nvml::Open(const char* pci_bus_id) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  std::unique_ptr<Nvml> nvml(new Nvml);
  const auto start = Find<Plain>(library, "nvmlInit_v2");
  const auto handle =
      Find<HandleByPci>(library, "nvmlDeviceGetHandleByPciBusId_v2");
  if (start == nullptr || handle == nullptr || start() != 0) {
    dlclose(library);
    return nullptr;
  }
  nvml->library_ = library;
  if (handle(pci_bus_id, &nvml->card_) != 0) return nullptr;
  return nvml;
}

Nvml::~Nvml() {
  if (library_ == nullptr) return;
  if (const auto stop = Find<Plain>(library_, "nvmlShutdown")) stop();
  dlclose(library_);
}

std::string Nvml::DriverVersion() const {
  const auto read = Find<DriverText>(library_, "nvmlSystemGetDriverVersion");
  char text[80] = "";  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
  if (read == nullptr || read(text, sizeof(text)) != 0) return "";
  return text;
}

void Nvml::Read(PwDeviceState* state) const {
  unsigned value = 0;
  const auto number = [&](const char* name) {
    const auto read = Find<ReadNumber>(library_, name);
    return read != nullptr && read(card_, &value) == 0;
  };
  const auto number_of = [&](const char* name, unsigned which) {
    const auto read = Find<ReadNumberOf>(library_, name);
    return read != nullptr && read(card_, which, &value) == 0;
  };
  if (number_of("nvmlDeviceGetClockInfo", kClockSm)) state->clock_mhz = value;
  if (number_of("nvmlDeviceGetClockInfo", kClockMemory)) {
    state->memory_clock_mhz = value;
  }
  if (number_of("nvmlDeviceGetMaxClockInfo", kClockSm)) {
    state->max_clock_mhz = value;
  }
  if (number("nvmlDeviceGetPowerUsage")) {
    state->power_w = value / 1000.0;  // comes in milliwatts
  }
  if (number_of("nvmlDeviceGetTemperature", kTemperatureGpu)) {
    state->temperature_c = value;
  }
  if (number("nvmlDeviceGetCurrPcieLinkGeneration")) {
    state->pcie_generation = static_cast<int32_t>(value);
  }
  if (number("nvmlDeviceGetCurrPcieLinkWidth")) {
    state->pcie_width = static_cast<int32_t>(value);
  }
  // The second is the name in drivers before 535.
  for (const char* name : {"nvmlDeviceGetCurrentClocksEventReasons",
                           "nvmlDeviceGetCurrentClocksThrottleReasons"}) {
    unsigned long long bits = 0;
    const auto read = Find<ReadBits>(library_, name);
    if (read == nullptr || read(card_, &bits) != 0) continue;
    state->throttle = static_cast<int64_t>(bits);
    break;
  }
}

}  // namespace pipewright::cuda
