// experiments/papers/torchtitan.
#include "absl/strings/match.h"
#include "sim/reproduce/steps.h"

namespace pipewright::torchtitan {
namespace {

// The defaults of torchtitan, compiled where the row does not say eager. Since
// 2025 training.compile compiles the loss too (torchtitan/components/loss.py,
// build_cross_entropy_loss), which then makes no copies of the logits; what
// time that saves was not measured.
void AsTorchtitan(const TableRow& row, RunConfig* config) {
  config->strategy.framework = Framework::kTorchtitan;
  if (!absl::StrContains(row.Text("note"), "eager")) {
    config->costs.analytic_kernels = FrameworkKernels::kCompiled;
  }
  if (absl::StrContains(row.Text("note"), "AdamW not fused")) {
    config->strategy.fused_optimizer = false;
  }
  if (absl::StrContains(row.Text("note"), "with the loss")) {
    config->strategy.fused_cross_entropy = true;
  }
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
}  // namespace pipewright::torchtitan
