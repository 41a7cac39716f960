// experiments/papers/megatron_bridge.
#include "sim/reproduce/steps.h"

namespace pipewright {
namespace {

const RegisterPaper kRow({
    .name = "megatron-bridge",
    .summary = "NVIDIA-NeMo/Megatron-Bridge 067f987df03b, performance tables",
    .metric = "seconds of a step by the analytic cost model",
    .run =
        [](const std::string& engine) {
          return ReproduceSteps({.folder = "megatron_bridge"}, engine);
        },
});

}  // namespace
}  // namespace pipewright
