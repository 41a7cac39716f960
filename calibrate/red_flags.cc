#include "calibrate/red_flags.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"
#include "sim/cost/profile_shape.h"
#include "sim/profile/transport_names.h"

namespace pipewright {
namespace {

// Limits for one GPU of the H100 and H200 class. Peak of dense bf16: 989
// TFLOP/s, NVIDIA H100 data sheet; measured with random inputs 798, with
// zeros 894.
constexpr double kGemmFlops = 850e12;
// Of dense fp8, 1979 TFLOP/s in the same data sheet: the same share.
constexpr double kFp8Flops = 1700e12;
// cuDNN 9.19 on H200: up to 702 (NVIDIA/cudnn-frontend, benchmark/).
constexpr double kAttentionFlops = 750e12;
// HBM3 of the H100, data sheet; what is faster was in L2. H200: 4.8 TB/s.
constexpr double kMemory = 3.35e12;
constexpr double kMemoryH200 = 4.8e12;
// PCIe 5.0 x16: 63 GB/s each way before the protocol's overhead.
constexpr double kPcie = 60e9;
// NVLink 4: 900 GB/s both ways, data sheet; measured 380 one way
// (NVIDIA/nccl issue 1264). No algorithm gets more out of a GPU or into it.
constexpr double kNvlink = 450e9;
// A kernel's launch takes 2 to 4 us, and NCCL's model has 6.6 us before the
// first byte (src/graph/tuning.cc of v2.28.9). A faster transfer has sent
// nothing.
constexpr double kLeastTransfer = 2e-6;
// Below it the device is capped: data sheet, boost 1.98 GHz.
constexpr double kClockMhz = 1400;
// The clock of the fastest round over that of the slowest.
constexpr double kClockChange = 1.1;
// NVML, nvmlClocksEventReasonGpuIdle: no throttling.
constexpr int64_t kGpuIdle = 1;
// No core and no socket is faster; faster work was not done at all.
constexpr double kCpuFlops = 20e12;
// F and W have the same FLOPs in linear layers; only F has attention and norms.
constexpr double kLeastFOverW = 0.9;
constexpr double kMostFOverW = 1.5;
// In fp8 the linear layers take half as long, and the rest of F takes as long
// as before: 2 * 1.5 - 1.
constexpr double kMostFOverWFp8 = 2;
// F, B, W by themselves against the three back to back.
constexpr double kChain = 0.03;

class Flags {
 public:
  Flags(const Profile& profile, const ProfileSource& source,
        const std::vector<ProfileState>& rounds,
        std::vector<std::string>* warnings)
      : profile_(profile),
        source_(source),
        rounds_(rounds),
        warnings_(warnings),
        gpu_(source.backend == "cuda") {}

  void Append() {
    MeasuredDevice();
    Kernels();
    Passes();
    Chains();
    Copies();
    Transfers();
  }

 private:
  void Flag(const std::string& text) { warnings_->push_back(text); }

  void MeasuredDevice() {
    std::vector<ProfileState> states = rounds_;
    if (states.empty()) states = {source_.before, source_.after};
    int64_t throttle = 0;
    double lowest = 0;
    double highest = 0;
    for (const ProfileState& state : states) {
      if (state.throttle > 0) throttle |= state.throttle & ~kGpuIdle;
      if (state.clock_mhz <= 0) continue;
      lowest = lowest > 0 ? std::min(lowest, state.clock_mhz) : state.clock_mhz;
      highest = std::max(highest, state.clock_mhz);
    }
    if (throttle != 0) {
      Flag(absl::StrFormat("the device throttled (reasons 0x%x)", throttle));
    }
    if (gpu_ && lowest > 0 && lowest < kClockMhz) {
      Flag(
          absl::StrFormat("SM clock of %.0f MHz under load: below %.0f MHz the "
                          "device is capped",
                          lowest, kClockMhz));
    }
    if (highest > kClockChange * lowest) {
      Flag(absl::StrFormat("the clock was between %.0f and %.0f MHz", lowest,
                           highest));
    }
  }

  static double GemmLimit(bool fp8) { return fp8 ? kFp8Flops : kGemmFlops; }

  void Rate(const std::string& what, double flops, double seconds,
            double limit) {
    if (seconds <= 0 || flops / seconds <= limit) return;
    Flag(absl::StrFormat(
        "%s: %.0f TFLOP/s, more than the %.0f that are plausible (inputs of "
        "zeros, or wrong FLOPs)",
        what, flops / seconds / 1e12, limit / 1e12));
  }

  void Bandwidth(const std::string& what, double bytes, double seconds,
                 double limit) {
    if (seconds <= 0 || bytes / seconds <= limit) return;
    Flag(absl::StrCat(what, ": ", FormatBandwidth(bytes / seconds),
                      ", more than the ", FormatBandwidth(limit),
                      " that are plausible"));
  }

  void MemoryRate(const std::string& what, double bytes, double seconds) {
    Bandwidth(
        what, bytes, seconds,
        absl::StrContains(source_.device, "H200") ? kMemoryH200 : kMemory);
  }

  void Kernels() {
    for (const KernelEntry& entry : profile_.kernels) {
      const bool attention = absl::StartsWith(entry.name, "attention");
      Rate(KeyOf(entry), entry.flops, entry.time.median_s,
           !gpu_       ? kCpuFlops
           : attention ? kAttentionFlops
                       : GemmLimit(entry.type == "fp8"));
      // A kernel without products moves bytes, with a cold cache.
      if (gpu_ && entry.flops <= 0) {
        MemoryRate(KeyOf(entry), entry.bytes, entry.time.median_s);
      }
    }
  }

  void Passes() {
    struct Pair {
      double forward = 0;
      double weight = 0;
      double most = kMostFOverW;
    };
    std::map<std::string, Pair> forward_and_weight;
    for (const PassEntry& entry : profile_.passes) {
      // Embedding and head of an fp8 run are in bf16.
      const bool fp8 = entry.type == "fp8" && entry.part == ProfilePart::kLayer;
      Rate(KeyOf(entry), entry.flops, entry.time.median_s,
           gpu_ ? GemmLimit(fp8) : kCpuFlops);
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
      if (entry.pass == ProfilePass::kForward) {
        pair.forward = entry.time.median_s;
      }
      if (entry.pass == ProfilePass::kBackwardWeight) {
        pair.weight = entry.time.median_s;
      }
    }
    if (!gpu_) return;
    for (const auto& [key, pair] : forward_and_weight) {
      if (pair.forward <= 0 || pair.weight <= 0) continue;
      const double ratio = pair.forward / pair.weight;
      if (ratio < kLeastFOverW || ratio > pair.most) {
        Flag(absl::StrFormat("%s: F / W is %.2f; plausible are %.1f to %.1f",
                             key, ratio, kLeastFOverW, pair.most));
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
        Bandwidth(KeyOf(entry), bytes, entry.time.median_s, kPcie);
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
      Bandwidth(KeyOf(entry), least, seconds, kNvlink);
      if (seconds > 0 && seconds < kLeastTransfer) {
        Flag(absl::StrCat(KeyOf(entry), ": ", FormatSeconds(seconds),
                          ", less than a kernel takes to start"));
      }
    }
  }

  const Profile& profile_;
  const ProfileSource& source_;
  const std::vector<ProfileState>& rounds_;
  std::vector<std::string>* warnings_;
  bool gpu_;
};

}  // namespace

void AppendRedFlags(const Profile& profile, const ProfileSource& source,
                    const std::vector<ProfileState>& rounds,
                    std::vector<std::string>* warnings) {
  Flags(profile, source, rounds, warnings).Append();
}

}  // namespace pipewright
