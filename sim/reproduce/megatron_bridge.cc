// experiments/papers/megatron_bridge.
#include "sim/reproduce/steps.h"

namespace pipewright {
namespace {

// Recipes of that commit (scripts/performance/configs): gradients are kept and
// reduced in bf16.
void AsRecipe(const TableRow&, RunConfig* config) {
  config->strategy.gradient_bytes_per_parameter = 2;
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
