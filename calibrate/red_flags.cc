#include "calibrate/red_flags.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "calibrate/kineto_checks.h"
#include "sim/base/quantity.h"
#include "sim/cost/device.h"
#include "sim/cost/profile_shape.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

// What a device cannot do faster, as far as that is known of it: a second, and
// bytes a second; 0: not known.
struct DeviceLimits {
  double bf16_flops = 0;
  double fp8_flops = 0;
  double attention_flops = 0;
  double memory = 0;
  double pcie = 0;       // one way
  double nvlink = 0;     // one way
  double clock_mhz = 0;  // below it the device is capped
  // Up to so many bytes that a kernel writes stay in the last-level cache and
  // reach the memory after its end; below 0: not known, perhaps all.
  int64_t cache_bytes = -1;
};

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

// Limits by the data sheet of the shipped device that fits `source`, and by
// what the device says of itself in `states`. `cache_bytes` 0: not known.
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

// A kernel's launch takes 2 to 4 us, and NCCL's model has 6.6 us before the
// first byte (src/graph/tuning.cc of v2.28.9). A faster transfer has sent
// nothing.
constexpr double kLeastTransfer = 2e-6;
// The clock of the fastest round over that of the slowest.
constexpr double kClockChange = 1.1;
// NVML, nvmlClocksEventReasonGpuIdle: no throttling.
constexpr int64_t kGpuIdle = 1;
// F and W have the same FLOPs in linear layers; only F has attention and norms.
constexpr double kLeastFOverW = 0.9;
constexpr double kMostFOverW = 1.5;
// In W of a layer of experts each has a product of its own, small and many.
constexpr double kLeastFOverWOfExperts = 0.5;
// In shorter passes launches and small kernels take the time.
constexpr double kShortPass = 100e-6;
// In fp8 the linear layers take half as long, and the rest of F takes as long
// as before: 2 * 1.5 - 1.
constexpr double kMostFOverWFp8 = 2;
// F, B, W by themselves against the three back to back.
constexpr double kChain = 0.03;

class Flags {
 public:
  Flags(const Profile& profile, const ProfileSource& source,
        const std::vector<ProfileState>& rounds, int64_t cache_bytes,
        std::vector<std::string>* warnings)
      : profile_(profile),
        states_(rounds),
        warnings_(warnings),
        gpu_(source.backend == "cuda") {
    if (states_.empty()) states_ = {source.before, source.after};
    limits_ = gpu_ ? LimitsOfGpu(source, states_, cache_bytes) : LimitsOfCpu();
  }

  void Append() {
    MeasuredDevice();
    Kernels();
    OwnAttention();
    Passes();
    Chains();
    Copies();
    Transfers();
  }

 private:
  void Flag(const std::string& text) { warnings_->push_back(text); }

  void MeasuredDevice() {
    int64_t throttle = 0;
    double lowest = 0;
    double highest = 0;
    for (const ProfileState& state : states_) {
      if (state.throttle > 0) throttle |= state.throttle & ~kGpuIdle;
      if (state.clock_mhz <= 0) continue;
      lowest = lowest > 0 ? std::min(lowest, state.clock_mhz) : state.clock_mhz;
      highest = std::max(highest, state.clock_mhz);
    }
    if (throttle != 0) {
      Flag(absl::StrFormat("the device throttled (reasons 0x%x)", throttle));
    }
    if (lowest > 0 && lowest < limits_.clock_mhz) {
      Flag(
          absl::StrFormat("SM clock of %.0f MHz under load: below %.0f MHz the "
                          "device is capped",
                          lowest, limits_.clock_mhz));
    }
    if (highest > kClockChange * lowest) {
      Flag(absl::StrFormat("the clock was between %.0f and %.0f MHz", lowest,
                           highest));
    }
  }

  double GemmLimit(bool fp8) const {
    return fp8 ? limits_.fp8_flops : limits_.bf16_flops;
  }

  void Rate(const std::string& what, double flops, double seconds,
            double limit) {
    if (seconds <= 0 || limit <= 0 || flops / seconds <= limit) return;
    Flag(absl::StrFormat(
        "%s: %.0f TFLOP/s, more than the %.0f that are plausible (inputs of "
        "zeros, or wrong FLOPs)",
        what, flops / seconds / 1e12, limit / 1e12));
  }

  void Bandwidth(const std::string& what, double bytes, double seconds,
                 double limit) {
    if (seconds <= 0 || limit <= 0 || bytes / seconds <= limit) return;
    Flag(absl::StrCat(what, ": ", FormatBandwidth(bytes / seconds),
                      ", more than the ", FormatBandwidth(limit),
                      " that are plausible"));
  }

  // `bytes` read and written. No kernel here writes more than it reads, and
  // what it leaves in the cache it has not paid for.
  void MemoryRate(const std::string& what, double bytes, double seconds) {
    double unpaid = bytes / 2;
    if (limits_.cache_bytes >= 0) {
      unpaid = std::min(unpaid, static_cast<double>(limits_.cache_bytes));
    }
    Bandwidth(what, bytes - unpaid, seconds, limits_.memory);
  }

  void Kernels() {
    for (const KernelEntry& entry : profile_.kernels) {
      const bool attention = absl::StartsWith(entry.name, "attention");
      Rate(
          KeyOf(entry), entry.flops, entry.time.median_s,
          attention ? limits_.attention_flops : GemmLimit(entry.type == "fp8"));
      // A kernel without products moves bytes, with a cold cache.
      if (gpu_ && entry.flops <= 0) {
        MemoryRate(KeyOf(entry), entry.bytes, entry.time.median_s);
      }
    }
  }

  // It is right, and takes tens of times as long.
  void OwnAttention() {
    constexpr absl::string_view kOwn = "own attention; ";
    for (const KernelEntry& entry : profile_.kernels) {
      if (!absl::StartsWith(entry.implementation, kOwn)) continue;
      Flag(absl::StrCat(KeyOf(entry),
                        ": our own slow kernels ran, as cuDNN has "
                        "no plan: ",
                        entry.implementation.substr(kOwn.size())));
    }
  }

  void Passes() {
    struct Pair {
      double forward = 0;
      double weight = 0;
      double least = kLeastFOverW;
      double most = kMostFOverW;
    };
    std::map<std::string, Pair> forward_and_weight;
    for (const PassEntry& entry : profile_.passes) {
      // Embedding and head of an fp8 run are in bf16.
      const bool fp8 = entry.type == "fp8" && entry.part == ProfilePart::kLayer;
      Rate(KeyOf(entry), entry.flops, entry.time.median_s, GemmLimit(fp8));
      if (entry.gemm_s > 0 && entry.gemm_s > 1.05 * entry.time.median_s) {
        Flag(absl::StrCat(KeyOf(entry), ": its matrix products alone take ",
                          FormatSeconds(entry.gemm_s), ", the whole pass ",
                          FormatSeconds(entry.time.median_s)));
      }
      if (!IsLayer(entry.part)) continue;
      PassEntry shape = entry;
      shape.pass = ProfilePass::kForward;
      Pair& pair = forward_and_weight[KeyOf(shape)];
      if (fp8) pair.most = kMostFOverWFp8;
      if (entry.part == ProfilePart::kExpertLayer) {
        pair.least = kLeastFOverWOfExperts;
      }
      if (entry.pass == ProfilePass::kForward) {
        pair.forward = entry.time.median_s;
      }
      if (entry.pass == ProfilePass::kBackwardWeight) {
        pair.weight = entry.time.median_s;
      }
    }
    if (!gpu_) return;
    for (const auto& [key, pair] : forward_and_weight) {
      if (pair.forward < kShortPass || pair.weight <= 0) continue;
      const double ratio = pair.forward / pair.weight;
      if (ratio < pair.least || ratio > pair.most) {
        Flag(absl::StrFormat("%s: F / W is %.2f; plausible are %.1f to %.1f",
                             key, ratio, pair.least, pair.most));
      }
    }
  }

  void Chains() {
    for (const SplitEntry& split : profile_.splits) {
      double sum = 0;
      int found = 0;
      for (const PassEntry& entry : profile_.passes) {
        if (!IsSplitOf(split, entry) ||
            entry.pass == ProfilePass::kBackwardFull ||
            (entry.pass == ProfilePass::kRecompute && !split.recompute)) {
          continue;
        }
        sum += entry.time.median_s;
        ++found;
      }
      if (found < (split.recompute ? 4 : 3) || split.chain.median_s <= 0) {
        continue;
      }
      const double off = sum / split.chain.median_s - 1;
      if (std::abs(off) > kChain) {
        Flag(absl::StrFormat(
            "%s: its passes by themselves take %+.1f %% of the same back to "
            "back (plausible: within %.0f %%)",
            KeyOf(split), 100 * off, 100 * kChain));
      }
    }
  }

  void Copies() {
    if (!gpu_) return;
    for (const CopyEntry& entry : profile_.copies) {
      const auto bytes = static_cast<double>(entry.bytes);
      if (entry.direction == CopyDirection::kDeviceToDevice) {
        // Read and written.
        MemoryRate(KeyOf(entry), 2 * bytes, entry.time.median_s);
      } else {
        Bandwidth(KeyOf(entry), bytes, entry.time.median_s, limits_.pcie);
      }
    }
  }

  void Transfers() {
    for (const TransferEntry& entry : profile_.transfers) {
      if (!gpu_ || entry.transport != kNcclTransport) continue;
      const double seconds = entry.time.median_s;
      // The switch may add up (NVLink SHARP). Then a GPU sends its buffer once
      // and receives it once.
      const double least = std::min(BusBytes(entry), double(entry.bytes));
      Bandwidth(KeyOf(entry), least, seconds, limits_.nvlink);
      if (seconds > 0 && seconds < kLeastTransfer) {
        Flag(absl::StrCat(KeyOf(entry), ": ", FormatSeconds(seconds),
                          ", less than a kernel takes to start"));
      }
    }
  }

  const Profile& profile_;
  std::vector<ProfileState> states_;
  DeviceLimits limits_;
  std::vector<std::string>* warnings_;
  bool gpu_;
};

}  // namespace

void AppendRedFlags(const Profile& profile, const ProfileSource& source,
                    const std::vector<ProfileState>& rounds,
                    int64_t cache_bytes, std::vector<std::string>* warnings) {
  Flags(profile, source, rounds, cache_bytes, warnings).Append();
}

}  // namespace pipewright
