// experiments/papers/torchtitan.
#include "absl/strings/match.h"
#include "sim/reproduce/steps.h"

namespace pipewright {
namespace {

// FSDP2 as torchtitan uses it: weights, gradients and moments in fp32, weights
// gathered in bf16, kept between the passes where there is a pipeline
// (reshard_after_forward "default"). Cross entropy, rotary embeddings and
// attention are PyTorch's, and what the row does not compile is eager.
void AsTorchtitan(const TableRow& row, RunConfig* config) {
  StrategyChoice& strategy = config->strategy;
  strategy.parameter_bytes_per_parameter = 4;
  strategy.gradient_bytes_per_parameter = 4;
  strategy.master_bytes_per_parameter = 0;
  strategy.moment_bytes_per_parameter = 8;
  strategy.gather_type = GatherType::kBf16;
  strategy.fused_cross_entropy = false;
  const bool is_eager = absl::StrContains(row.Text("note"), "eager");
  config->costs.analytic_kernels =
      is_eager ? FrameworkKernels::kEager : FrameworkKernels::kCompiled;
  if (row.Integer("pp") > 1) strategy.reshard_after_forward = false;
}

const RegisterPaper kRow({
    .name = "torchtitan",
    .summary = "pytorch/torchtitan, benchmark pages of December 2024 (H100 "
               "96GB) and June 2025 (H200)",
    .metric = "seconds of a step by the analytic cost model",
    .run =
        [](const std::string& engine) {
          return ReproduceSteps(
              {.folder = "torchtitan", .adjust = &AsTorchtitan}, engine);
        },
});

}  // namespace
}  // namespace pipewright
