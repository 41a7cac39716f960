#include "calibrate/device_limits.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "calibrate/kineto_checks.h"
#include "sim/cost/device.h"

namespace pipewright {
namespace {

// No device is near; faster work was not done at all.
constexpr double kAnyFlops = 10e15;
constexpr double kAnyMemory = 50e12;
constexpr double kCpuFlops = 20e12;
// Largest share of the peak of dense bf16 and fp8 on chips of the H100.
// Measured there with random inputs 798 TFLOP/s in bf16, with zeros 894: 850 is
// inputs of zeros. For other chips it is not known, and the peak itself is the
// limit.
constexpr double kH100Share = 0.859;
// cuDNN 9.19 on H200: up to 702 TFLOP/s (NVIDIA/cudnn-frontend, benchmark/).
constexpr double kH100AttentionShare = 0.758;
// An H100 under a lasting load runs at 1.7 to 1.98 GHz, of 1.98.
constexpr double kLeastClock = 0.7;

// Rate of a lane one way: the specification's without the protocol's overhead,
// 60 GB/s for 16 lanes of generation 5. 0: not known.
double LaneRate(int generation) {
  constexpr double kOfGeneration5 = 60e9 / 16;
  switch (generation) {
    case 3:
      return kOfGeneration5 / 4;
    case 4:
      return kOfGeneration5 / 2;
    case 5:
      return kOfGeneration5;
    case 6:
      return 2 * kOfGeneration5;
    default:
      return 0;
  }
}

// All links of a GPU one way, data sheets. NVLink 4: measured 380 of 450 GB/s
// (NVIDIA/nccl issue 1264). No algorithm gets more out of a GPU or into it.
double NvlinkRate(const std::string& architecture) {
  if (architecture == "ampere") return 300e9;
  if (architecture == "hopper") return 450e9;
  if (architecture == "blackwell") return 900e9;
  return 0;
}

}  // namespace

DeviceLimits LimitsOfGpu(const ProfileSource& source,
                         const std::vector<ProfileState>& states,
                         int64_t cache_bytes) {
  DeviceLimits limits = {.bf16_flops = kAnyFlops,
                         .fp8_flops = kAnyFlops,
                         .attention_flops = kAnyFlops,
                         .memory = kAnyMemory};
  if (cache_bytes > 0) limits.cache_bytes = cache_bytes;
  const DeviceSpec* const device =
      FastestThatFits({.name = source.device,
                       .memory_bytes = source.memory_bytes,
                       .multiprocessors = source.cores});
  if (device != nullptr) {
    const bool h100 = device->silicon == "h100" || device->silicon == "h200";
    limits.bf16_flops = device->bf16_flops * (h100 ? kH100Share : 1);
    limits.attention_flops =
        device->bf16_flops * (h100 ? kH100AttentionShare : 1);
    if (device->fp8_flops > 0) {
      limits.fp8_flops = device->fp8_flops * (h100 ? kH100Share : 1);
    }
    limits.memory = device->hbm_bytes_per_s;
    limits.nvlink = NvlinkRate(device->architecture);
  }
  // Grace's own link is no PCIe, whatever the driver says of that.
  const bool grace = absl::StrContains(source.device, "GH200") ||
                     absl::StrContains(source.device, "GB200") ||
                     absl::StrContains(source.device, "GB300");
  for (const ProfileState& state : states) {
    limits.clock_mhz =
        std::max(limits.clock_mhz, kLeastClock * state.max_clock_mhz);
    if (grace || state.pcie_width <= 0) continue;
    // An idle link may be slower than it can be.
    limits.pcie = std::max(limits.pcie,
                           state.pcie_width * LaneRate(state.pcie_generation));
  }
  return limits;
}

DeviceLimits LimitsOfCpu() {
  return {.bf16_flops = kCpuFlops,
          .fp8_flops = kCpuFlops,
          .attention_flops = kCpuFlops};
}

}  // namespace pipewright
