#include "tests/support/example_profile.h"

namespace pipewright::testing {
namespace {

// Times that nine digits of a microsecond hold.
Distribution Around(double micros) {
  const double median = micros / 1e6;
  return {.count = 40,
          .outliers = 1,
          .median_s = median,
          .p10_s = (micros - 0.5) / 1e6,
          .p90_s = (micros + 0.5) / 1e6,
          .mean_s = (micros + 0.125) / 1e6,
          .min_s = (micros - 1) / 1e6,
          .max_s = (micros + 8) / 1e6,
          .mad_s = 0.25 / 1e6,
          .confidence_low_s = (micros - 0.125) / 1e6,
          .confidence_high_s = (micros + 0.125) / 1e6,
          .prediction_low_s = (micros - 0.25) / 1e6,
          .prediction_high_s = (micros + 0.25) / 1e6,
          .quantiles_s = {(micros - 1) / 1e6, median, (micros + 8) / 1e6}};
}

}  // namespace

Profile ExampleProfile() {
  const ProfileModel model = {.style = "llama",
                              .hidden = 4096,
                              .heads = 32,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .ffn = 14336,
                              .vocabulary = 128256};
  ProfileModel experts = model;
  experts.experts = 8;
  experts.experts_per_token = 2;
  experts.expert_ffn = 14336;
  experts.shared_ffn = 1024;
  Profile profile;
  profile.sources = {{.kind = "calibrate",
                      .version = "0.1.0",
                      .date = "2026-01-02T03:04:05Z",
                      .backend = "cuda",
                      .device = "NVIDIA H100 80GB HBM3",
                      .driver = "580.65",
                      .libraries = "cublasLt 13.1.0",
                      .system = "Linux 6.1 \"Debian\"",
                      .cores = 132,
                      .memory_bytes = 85899345920,
                      .before = {.clock_mhz = 1830, .pcie_generation = 5},
                      .seconds = 100.5,
                      .warnings = {"D2H > 60 GB/s", "throttled"}}};
  profile.passes = {{.model = model,
                     .type = "bf16",
                     .microbatch_size = 1,
                     .sequence = 4096,
                     .time = Around(18522.125),
                     .gemm_s = 0.0175,
                     .flops = 1.924e12,
                     .implementation = "cublasLt"},
                    {.model = model,
                     .part = ProfilePart::kHead,
                     .pass = ProfilePass::kBackwardFull,
                     .type = "bf16",
                     .microbatch_size = 1,
                     .sequence = 4096,
                     .tp = 2,
                     .time = Around(5)},
                    {.model = experts,
                     .part = ProfilePart::kExpertLayer,
                     .type = "bf16",
                     .microbatch_size = 1,
                     .sequence = 4096,
                     .ep = 4,
                     .time = Around(9000)}};
  profile.splits = {{.model = model,
                     .type = "bf16",
                     .microbatch_size = 1,
                     .sequence = 4096,
                     .recompute = true,
                     .chain = Around(40000),
                     .fused = Around(39000)}};
  profile.kernels = {{.name = "gemm.forward",
                      .shape = {4096, 4096, 4096},
                      .type = "bf16",
                      .time = Around(200),
                      .flops = 137438953472,
                      .bytes = 100663296}};
  profile.optimizers = {
      {.where = "host", .parameters = 1000000, .time = Around(900)},
      {.where = "device",
       .parameters = 1000000,
       .time = Around(300),
       .prediction = true}};
  profile.copies = {
      {.bytes = 67108864, .beside_opposite = true, .time = Around(1300)},
      {.direction = CopyDirection::kDeviceToDevice,
       .bytes = 1000,
       .time = Around(3)}};
  profile.transfers = {{.operation = "all_reduce",
                        .transport = "nccl",
                        .ranks = 8,
                        .bytes = 1048576,
                        .time = Around(30)}};
  profile.interference = {{.pass = ProfilePass::kBackwardWeight,
                           .beside = Beside::kCollective,
                           .pass_slowdown = 1.18,
                           .pass_low = 1.17,
                           .pass_high = 1.19,
                           .beside_slowdown = 1.05,
                           .beside_low = 1.01,
                           .beside_high = 1.1}};
  profile.host_memory_bytes_per_s = 2e11;
  profile.device_memory_bytes_per_s = 3e12;
  return profile;
}

}  // namespace pipewright::testing
