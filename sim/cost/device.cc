#include "sim/cost/device.h"

#include "sim/base/names.h"

namespace pipewright {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiB = 1024.0 * 1024 * 1024;

// Sources that several rows share.
constexpr char kMatmul[] =
    "Maximum Achievable Matmul FLOPS table, stas00/ml-engineering, "
    "compute/accelerator (2026), best shape in brackets; taken to full waves "
    "and a long inner dimension with the curve of kernel_time.cc: ";
constexpr char kAttentionHopper[] =
    "NVIDIA/cudnn-frontend, benchmark csv h200_919_only_cudnn: cuDNN 9.19.1 on "
    "H200, d = 128, causal and not, 2048..32768 tokens";
constexpr char kAttentionAmpere[] =
    "FlashAttention-2, arXiv 2307.08691, section 4.1: up to 73 % of the peak "
    "forward and 63 % backward on A100 80GB";
constexpr char kHopperCopy[] =
    "device-to-device copies measured at 3.0 TB/s of 3.35 on H100 and 4.3 of "
    "4.8 on H200 (reported, raw data not at hand)";
constexpr char kAmpereRing[] =
    "NVIDIA/nccl v2.28.9, src/graph: 12 channels of 20 GB/s over 300 GB/s";
constexpr char kHopperRing[] =
    "NVIDIA/nccl v2.28.9, src/graph/topo.h: 18 channels of 20.6 GB/s over 450 "
    "GB/s";

DeviceSpec A100(const char* name, const char* device_name, double bandwidth,
                double memory, const char* memory_source) {
  return {
      .name = name,
      .device_name = device_name,
      .bf16_flops = 312 * kTera,
      .fp8_flops = 0,
      .hbm_bytes_per_s = bandwidth,
      .memory_bytes = memory,
      .multiprocessors = 108,
      .bf16_sustained = 0.75,
      .hbm_sustained = 0.88,
      .attention_forward = 0.73,
      .attention_backward = 0.63,
      .collective_sustained = 0.8,
      .sources = {{"bf16_flops", "NVIDIA A100 data sheet (2021)"},
                  {"hbm_bytes_per_s", memory_source},
                  {"memory_bytes", memory_source},
                  {"multiprocessors",
                   "NVIDIA A100 Tensor Core GPU Architecture, white paper"},
                  {"bf16_sustained",
                   "qhduan/transformers-benchmarks, micro-benchmark: 230 "
                   "TFLOP/s of fp16 at 8192^3 on A100 80GB, a rate under a "
                   "lasting load; the best shape of a search reaches 271 in "
                   "short runs (Maximum Achievable Matmul FLOPS table, "
                   "stas00/ml-engineering)"},
                  {"hbm_sustained",
                   "BabelStream triad on A100 80GB, about 1.79 of 2.04 TB/s "
                   "(from memory of published runs)"},
                  {"attention_forward", kAttentionAmpere},
                  {"attention_backward", kAttentionAmpere},
                  {"collective_sustained", kAmpereRing}},
  };
}

DeviceSpec Hopper(const char* name, const char* device_name, double bandwidth,
                  double memory, const char* sheet) {
  return {
      .name = name,
      .device_name = device_name,
      .bf16_flops = 989.4 * kTera,
      .fp8_flops = 1978.9 * kTera,
      .hbm_bytes_per_s = bandwidth,
      .memory_bytes = memory,
      .multiprocessors = 132,
      .bf16_sustained = 0.82,
      .fp8_sustained = 0.74,
      .hbm_sustained = 0.896,
      .attention_forward = 0.713,
      .attention_backward = 0.617,
      .collective_sustained = 0.824,
      .sources = {{"bf16_flops", sheet},
                  {"fp8_flops", sheet},
                  {"hbm_bytes_per_s", sheet},
                  {"memory_bytes", sheet},
                  {"multiprocessors",
                   "NVIDIA H100 Tensor Core GPU Architecture, white paper"},
                  {"bf16_sustained", std::string(kMatmul) +
                                         "H100 SXM 794.5 TFLOP/s "
                                         "[2048x2048x13312], H200 the same"},
                  {"fp8_sustained", std::string(kMatmul) +
                                        "H100 SXM 1402.6 TFLOP/s "
                                        "[1024x9216x14336], H200 1453.4 "
                                        "[1280x4096x12032]"},
                  {"hbm_sustained", kHopperCopy},
                  {"attention_forward", kAttentionHopper},
                  {"attention_backward", kAttentionHopper},
                  {"collective_sustained", kHopperRing}},
  };
}

DeviceSpec B200() {
  constexpr char kSheet[] = "NVIDIA DGX B200 data sheet, an eighth of it";
  return {
      .name = "b200",
      .device_name = "B200 SXM 180GB",
      .bf16_flops = 2250 * kTera,
      .fp8_flops = 4500 * kTera,
      .hbm_bytes_per_s = 8.0 * kTera,
      .memory_bytes = 180e9,
      .multiprocessors = 148,
      .bf16_sustained = 0.82,
      .fp8_sustained = 0.80,
      .hbm_sustained = 0.896,
      .attention_forward = 0.713,
      .attention_backward = 0.617,
      .collective_sustained = 0.824,
      .sources = {{"bf16_flops", kSheet},
                  {"fp8_flops", kSheet},
                  {"hbm_bytes_per_s", kSheet},
                  {"memory_bytes", kSheet},
                  {"multiprocessors", "cudaDeviceProp of B200 SXM"},
                  {"bf16_sustained", std::string(kMatmul) +
                                         "B200 SXM 1745 TFLOP/s "
                                         "[1792x16128x3072]"},
                  {"fp8_sustained", std::string(kMatmul) +
                                        "B200 SXM 3432.5 TFLOP/s "
                                        "[15360x4096x3072]"},
                  {"hbm_sustained", "taken as that of H200"},
                  {"attention_forward", "taken as that of H200"},
                  {"attention_backward", "taken as that of H200"},
                  {"collective_sustained", "taken as that of H100"}},
  };
}

DeviceSpec Mi300x() {
  constexpr char kSheet[] = "AMD Instinct MI300X data sheet";
  return {
      .name = "mi300x",
      .device_name = "MI300X 192GB",
      .bf16_flops = 1307.4 * kTera,
      .fp8_flops = 2614.9 * kTera,
      .hbm_bytes_per_s = 5.3 * kTera,
      .memory_bytes = 192 * kGiB,
      .multiprocessors = 304,
      .bf16_sustained = 0.54,
      .fp8_sustained = 0.54,
      .hbm_sustained = 0.81,
      .attention_forward = 0.40,
      .attention_backward = 0.30,
      .collective_sustained = 0.75,
      .sources =
          {{"bf16_flops", kSheet},
           {"fp8_flops", kSheet},
           {"hbm_bytes_per_s", kSheet},
           {"memory_bytes", kSheet},
           {"multiprocessors", kSheet},
           {"bf16_sustained", std::string(kMatmul) + "MI300X 668.4 TFLOP/s "
                                                     "[10240x15360x8192]"},
           {"fp8_sustained", "taken as that of bf16"},
           {"hbm_sustained", "an assumption: about 4.3 TB/s"},
           {"attention_forward", "an assumption"},
           {"attention_backward", "an assumption"},
           {"collective_sustained",
            "AMD ROCm blog, Understanding RCCL Bandwidth and xGMI "
            "Performance on MI300X (2025): 48 of 64 GB/s a link usable"}},
  };
}

}  // namespace

const std::vector<DeviceSpec>& AllDevices() {
  static const auto* devices = new std::vector<DeviceSpec>{
      A100("a100-40gb", "A100 SXM4 40GB", 1.555 * kTera, 40 * kGiB,
           "NVIDIA A100 data sheet (2021), A100 40GB SXM"),
      A100("a100-80gb", "A100 SXM4 80GB", 2.039 * kTera, 80 * kGiB,
           "NVIDIA A100 data sheet (2021), A100 80GB SXM"),
      B200(),
      Hopper("h100", "H100 SXM5 80GB", 3.35 * kTera, 80 * kGiB,
             "NVIDIA H100 data sheet, H100 SXM (dense: half of the sparse "
             "figure)"),
      Hopper("h200", "H200 SXM 141GB", 4.8 * kTera, 141e9,
             "NVIDIA H200 data sheet, H200 SXM (dense: half of the sparse "
             "figure)"),
      Mi300x(),
  };
  return *devices;
}

absl::StatusOr<DeviceSpec> FindDevice(absl::string_view name) {
  std::vector<std::string> known;
  for (const DeviceSpec& device : AllDevices()) {
    if (device.name == name || device.device_name == name) return device;
    known.push_back(device.name);
  }
  return UnknownName("device", name, known);
}

}  // namespace pipewright
