// How the work of a layer is launched and exchanged: what the host does for it,
// which exchanges run beside it, and how tokens reach their experts. A part of
// TrainingSpec. No times and no devices.
#pragma once

#include <cstdint>

namespace pipewright {

// Who launches kernels.
enum class Launch : uint8_t {
  kEager,     // Python, one operation after the other
  kCompiled,  // a compiled wrapper (torch.compile), without modules' own work
  kGraphs,    // CUDA graphs of Execution::graph_parts, the rest is eager
};

// Parts of a layer that can be in a graph, a bit each.
enum class OpPart : uint8_t {
  kAttention = 1,
  kDense = 2,    // norms, dense feed-forward, embedding, head
  kRouter = 4,   // up to the counts of tokens of each expert
  kExperts = 8,  // exchange, permutation and experts
};

// How the keys and values of a sequence in parts meet its queries.
enum class ContextExchange : uint8_t {
  kRing,       // round the ring, beside the computation
  kAllGather,  // all of them on every device, before the computation
  kAllToAll,   // by heads instead of tokens, before and after it
  // PyTorch's ring: each part gives a partial result, merged in fp32. Keys and
  // values are gathered once, or sent round; their gradients go round in fp32.
  kTorchGather,
  kTorchRotate,
};
inline bool IsTorchRing(ContextExchange context) {
  return context == ContextExchange::kTorchGather ||
         context == ContextExchange::kTorchRotate;
}

// How tokens reach their experts.
enum class ExpertDispatch : uint8_t {
  kAllToAll,  // a copy for each expert of a token
  // One for each device, and between nodes one for each node, which hands it
  // on (DeepEP, HybridEP); the way back alike.
  kOnce,
};

// How tokens fall to experts where nobody says how unevenly.
enum class Routing : uint8_t { kBalanced, kNatural };

struct Execution {
  Launch launch = Launch::kEager;
  // Parts of the model that are in a graph, a bit for each OpPart. How many
  // tokens an expert gets is only known on the device, so its kernels are
  // launched once the host knows it too: not in a graph, unless buffers have a
  // fixed size.
  uint8_t graph_parts = 7;
  // Tensor parallelism of experts; 0: that of the rest.
  int etp = 0;
  // Rows of the busiest device over the mean; 0: by `routing` (ExpertLoad in
  // sim/model/ops_builder.h).
  double expert_load = 0;
  Routing routing = Routing::kBalanced;
  // Rows of experts are sorted and summed by fused kernels.
  bool fused_permutation = true;
  // Nodes that the experts of one token are on at most; 0: any.
  int expert_nodes = 0;
  ExpertDispatch dispatch = ExpertDispatch::kAllToAll;
  // Exchanges with experts run beside the passes of another microbatch.
  bool overlap_experts = false;
  // Exchanges of tensor parallelism run beside their own product, in pieces, or
  // beside W's (OverlapOf in sim/cost/analytic.h).
  bool overlap_tensor = false;
  // Exchanges of layers run beside the passes of another microbatch: units of a
  // forward and of a backward in turn (braided, arXiv 2510.27257).
  bool braided_tensor = false;
  ContextExchange context = ContextExchange::kRing;
  // Each device has an early and a late part of a causal sequence; else they
  // are in order, and the device with the last part has most to do.
  bool context_balanced = true;
  // Keys and values are copied for each query head before attention.
  bool repeats_keys = false;
  // Products of experts, their activation and casts as one kernel.
  bool fused_experts = false;
  // Products of fused attention in 8 bit.
  bool fp8_attention = false;

  friend bool operator==(const Execution&, const Execution&) = default;

  bool graphs(OpPart part) const {
    return launch == Launch::kGraphs &&
           (graph_parts & static_cast<uint8_t>(part)) != 0;
  }
};

}  // namespace pipewright
