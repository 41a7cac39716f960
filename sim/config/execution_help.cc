#include "sim/config/execution_help.h"

namespace pipewright {

std::vector<FieldHelp> ExecutionHelp() {
  return {
      {"strategy.fp8_attention", "false",
       "products of fused attention in 8 bit, where rates of such were "
       "measured; kept values stay in 16 bit"},
      {"strategy.context", "ring",
       "how keys and values of a sequence over cp meet its queries: round a "
       "ring beside the computation, gathered before it, or dealt out by heads "
       "instead of tokens"},
      {"strategy.etp", "strategy.tp",
       "tensor parallelism of experts; strategy.ep then divides dp * cp * tp / "
       "etp"},
      {"strategy.dispatch", "all-to-all",
       "a copy of a token for each of its experts, or once for each device "
       "and, "
       "between nodes, for each node (DeepEP, HybridEP)"},
      {"strategy.expert_nodes", "all",
       "nodes that the experts of a token are on at most"},
      {"strategy.expert_load", "1",
       "tokens of the busiest device's experts over the mean"},
      {"strategy.fused_experts", "false",
       "products of experts, their activation and casts as one kernel, at the "
       "rates of measured layers"},
      {"strategy.overlap_experts", "false",
       "exchanges with experts run beside the passes of another microbatch"},
      {"strategy.overlap_tensor", "false",
       "exchanges of tensor parallelism run beside their own product, in tp "
       "pieces, or beside W's (tp_comm_overlap, asynchronous tensor "
       "parallelism)"},
      {"strategy.braided_tensor", "false",
       "exchanges of tensor parallelism of layers run beside the passes of "
       "another microbatch (braided)"},
      {"strategy.launch", "eager",
       "who launches kernels in estimates: Python, a compiled wrapper, or CUDA "
       "graphs; a pass takes the larger of device and host time"},
      {"strategy.graph_parts", "attention, dense, router",
       "what is in CUDA graphs; experts only where their buffers have a fixed "
       "size"},
  };
}

}  // namespace pipewright
