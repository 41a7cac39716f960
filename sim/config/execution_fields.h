// The fields of ExecutionChoice with their legal values, as VisitFields
// (run_config_fields.h) has the others.
#pragma once

#include <vector>

#include "sim/config/choice_row.h"
#include "sim/model/execution.h"

namespace pipewright {

inline const std::vector<ChoiceRow>& LaunchChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"eager", static_cast<int>(Launch::kEager)},
      {"compiled", static_cast<int>(Launch::kCompiled)},
      {"graphs", static_cast<int>(Launch::kGraphs)},
  };
  return rows;
}

// Of strategy.graph_parts.
inline const std::vector<ChoiceRow>& GraphPartChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"attention", static_cast<int>(OpPart::kAttention)},
      {"dense", static_cast<int>(OpPart::kDense)},
      {"router", static_cast<int>(OpPart::kRouter)},
      {"experts", static_cast<int>(OpPart::kExperts)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& DispatchChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"all-to-all", static_cast<int>(ExpertDispatch::kAllToAll)},
      {"once", static_cast<int>(ExpertDispatch::kOnce)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& ContextChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"ring", static_cast<int>(ContextExchange::kRing)},
      {"all-gather", static_cast<int>(ContextExchange::kAllGather)},
      {"all-to-all", static_cast<int>(ContextExchange::kAllToAll)},
  };
  return rows;
}

template <typename Choice, typename Visitor>
void VisitExecution(Choice& execution, Visitor& visit) {
  // More than any group of experts has devices, and than any node has.
  constexpr int kMost = 1 << 20;
  constexpr double kMostLoad = 1024;
  visit.Bool("strategy.fp8_attention", execution.fp8_attention);
  visit.Choice("strategy.context", execution.context, ContextChoices());
  visit.Int("strategy.etp", execution.etp, 1, kMost);
  visit.Choice("strategy.dispatch", execution.dispatch, DispatchChoices());
  visit.Int("strategy.expert_nodes", execution.expert_nodes, 1, kMost);
  visit.Real("strategy.expert_load", execution.expert_load, 1, kMostLoad);
  visit.Bool("strategy.fused_experts", execution.fused_experts);
  visit.Bool("strategy.overlap_experts", execution.overlap_experts);
  visit.Bool("strategy.overlap_tensor", execution.overlap_tensor);
  visit.Bool("strategy.braided_tensor", execution.braided_tensor);
  visit.Choice("strategy.launch", execution.launch, LaunchChoices());
  visit.Texts("strategy.graph_parts", execution.graph_parts);
}

}  // namespace pipewright
