// experiments/papers/megatron_bridge.
#include "sim/reproduce/steps.h"

namespace pipewright {
namespace {

// Recipes of that commit (scripts/performance/configs): gradients are kept and
// reduced in bf16, and exchanges of tensor parallelism overlap but with nvfp4
// (set_llama3_common_configs, tp_comm_overlap).
void AsRecipe(const TableRow& row, RunConfig* config) {
  StrategyChoice& strategy = config->strategy;
  strategy.gradient_bytes_per_parameter = 2;
  if (row.Integer("tp") > 1 && row.Text("precision") != "nvfp4") {
    strategy.tensor_overlap = TensorOverlap::kPieces;
  }
}

const RegisterPaper kRow({
    .name = "megatron-bridge",
    .summary = "NVIDIA-NeMo/Megatron-Bridge 067f987df03b, performance tables",
    .metric = "seconds of a step by the analytic cost model",
    .run =
        [](const std::string& engine) {
          return ReproduceSteps(
              {.folder = "megatron_bridge", .adjust = &AsRecipe}, engine);
        },
});

}  // namespace
}  // namespace pipewright
