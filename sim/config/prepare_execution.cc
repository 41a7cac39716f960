#include <string>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {

absl::StatusOr<uint8_t> BitsOf(const RunConfig& config, const char* field,
                               const std::vector<std::string>& names,
                               const std::vector<ChoiceRow>& rows) {
  uint8_t bits = 0;
  for (const std::string& name : names) {
    int found = 0;
    std::string known;
    for (const ChoiceRow& row : rows) {
      if (row.name == name) found = row.value;
      absl::StrAppend(&known, known.empty() ? "" : ", ", row.name);
    }
    if (found == 0) return BadValue(config.Field(field), name, known);
    if ((bits & found) != 0) {
      return BadValue(config.Field(field), absl::StrCat(name, " twice"),
                      absl::StrCat("each of ", known, " once"));
    }
    bits = static_cast<uint8_t>(bits | found);
  }
  return bits;
}

absl::StatusOr<Execution> PrepareExecution(const RunConfig& config) {
  const StrategyChoice& choice = config.strategy;
  Execution out;
  out.launch = choice.launch.value_or(out.launch);
  if (!choice.graph_parts.empty()) {
    PW_ASSIGN_OR_RETURN(out.graph_parts,
                        BitsOf(config, "strategy.graph_parts",
                               choice.graph_parts, GraphPartChoices()));
  }
  out.etp = ExpertTensorOf(choice, choice.ep.value_or(1));
  out.expert_load = choice.expert_load.value_or(out.expert_load);
  out.routing = choice.routing.value_or(out.routing);
  out.fused_permutation =
      choice.fused_permutation.value_or(out.fused_permutation);
  out.expert_nodes = choice.expert_nodes.value_or(out.expert_nodes);
  out.dispatch = choice.dispatch.value_or(out.dispatch);
  out.fused_experts = choice.fused_experts.value_or(out.fused_experts);
  out.fp8_attention = choice.fp8_attention.value_or(out.fp8_attention);
  out.overlap_experts = choice.overlap_experts.value_or(out.overlap_experts);
  out.overlap_tensor = choice.overlap_tensor.value_or(out.overlap_tensor);
  out.braided_tensor = choice.braided_tensor.value_or(out.braided_tensor);
  if (out.braided_tensor && out.overlap_tensor) {
    return BadValue(config.Field("strategy.braided_tensor"), "true",
                    "false with strategy.overlap_tensor, as an exchange is "
                    "hidden once");
  }
  out.context = choice.context.value_or(out.context);
  out.context_balanced = choice.context_balanced.value_or(true);
  out.repeats_keys = choice.repeat_keys.value_or(false);
  return out;
}

}  // namespace pipewright
