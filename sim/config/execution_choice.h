// The fields of section `strategy` that say how layers are launched and
// exchanged (sim/model/execution.h), as far as they are given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/model/execution.h"

namespace pipewright {

struct ExecutionChoice {
  std::optional<Launch> launch;
  std::vector<std::string> graph_parts;  // of GraphPartNames
  std::optional<int> etp;
  std::optional<double> expert_load;
  std::optional<int> expert_nodes;
  std::optional<ExpertDispatch> dispatch;
  std::optional<bool> fused_experts;
  std::optional<bool> fp8_attention;
  std::optional<bool> overlap_experts;
  std::optional<bool> overlap_tensor;
  std::optional<bool> braided_tensor;
  std::optional<ContextExchange> context;
};

}  // namespace pipewright
