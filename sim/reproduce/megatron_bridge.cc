// experiments/papers/megatron_bridge.
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "sim/base/check.h"
#include "sim/config/config_fields.h"
#include "sim/reproduce/steps.h"

namespace pipewright::megatron_bridge {
namespace {

template <typename Enum>
void Take(const std::vector<ChoiceRow>& rows, const std::string& name,
          std::optional<Enum>* value) {
  for (const ChoiceRow& row : rows) {
    if (row.name == name) *value = static_cast<Enum>(row.value);
  }
  PW_CHECK(value->has_value());
}

// Recipes of that commit (scripts/performance/configs): gradients are kept and
// reduced in bf16, and experts are not split over tensor parallelism. The rest
// stands in recipes.csv, by entry.
void TakeRecipe(const TableRow& row, RunConfig* config) {
  StrategyChoice& strategy = config->strategy;
  strategy.gradient_bytes_per_parameter = 2;
  if (*strategy.ep > 1 && *strategy.tp > 1) strategy.etp = 1;
  for (const TableRow& recipe : ReadTable("megatron_bridge/recipes")) {
    if (recipe.Text("entry") != row.Text("entry")) continue;
    Take(LaunchChoices(), recipe.Text("launch"), &strategy.launch);
    strategy.graph_parts =
        absl::StrSplit(recipe.Text("graph_parts"), ' ', absl::SkipEmpty());
    Take(DispatchChoices(), recipe.Text("dispatch"), &strategy.dispatch);
    strategy.overlap_experts = recipe.Integer("overlap_experts") != 0;
    strategy.fp8_attention = recipe.Integer("fp8_attention") != 0;
    strategy.fused_experts = recipe.Integer("fused_experts") != 0;
    if (recipe.Integer("overlap_tensor") != 0) strategy.overlap_tensor = true;
    Take(RecomputeChoices(), recipe.Text("recompute"), &strategy.recompute);
    return;
  }
}

const RegisterPaper kRow({
    .name = "megatron-bridge",
    .summary = "NVIDIA-NeMo/Megatron-Bridge 067f987df03b, performance tables",
    .metric = "seconds of a step by the analytic cost model",
    .run =
        [](const std::string& engine) {
          return ReproduceSteps(
              {.folder = "megatron_bridge", .adjust = &TakeRecipe}, engine);
        },
});

}  // namespace
}  // namespace pipewright::megatron_bridge
