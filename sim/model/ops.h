// The inventory of a model part: every operation that one device runs on one
// slice of a microbatch, with its work, what it keeps and what it exchanges.
// The one list from which parameters by rank (memory), activations (memory),
// FLOPs and times (cost) follow, so that they cannot disagree.
//
// All numbers are of one device and one slice of one microbatch, after
// tensor, sequence, context and expert parallelism. FLOPs count a
// multiply-add as two and are those executed (flash attention's recomputed
// scores included); bytes are HBM traffic or sizes, as said.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/base/kept.h"
#include "sim/model/model.h"
#include "sim/model/training.h"

namespace pipewright {

enum class BlockKind : uint8_t {
  kEmbedding,
  kDenseLayer,
  kExpertLayer,
  kMtpLayer,  // multi-token prediction: projection, layer, its pass by the head
  kHead,      // last norm, output head, loss
};
absl::string_view BlockKindName(BlockKind kind);
inline bool IsLayer(BlockKind kind) {
  return kind != BlockKind::kEmbedding && kind != BlockKind::kHead;
}

enum class OpClass : uint8_t {
  kGemm,         // C[m,n] += A[m,k] B[k,n]
  kGroupedGemm,  // `count` of them, m tokens in all
  kBatchedGemm,  // unfused attention's products: two forward, four backward,
                 // each of m x n x k for `count` heads
  kAttention,    // fused: scores, softmax, times values
  kScan,         // chunks of a recurrence: products of m x n x k inside of
                 // them, by `count` kernels forward
  kNorm,
  kElementwise,  // activation function, residual, dropout, rotary embedding
  kLookup,       // embedding
  kLoss,         // softmax and cross-entropy
  kRouting,      // top-k, permutation of tokens to experts and back
};

// Times of a pass. Recomputed work is that of kForward again.
enum class OpPass : uint8_t { kForward, kBackwardInput, kBackwardWeight };
inline constexpr int kNumOpPasses = 3;

struct OpWork {
  double flops = 0;
  double bytes = 0;  // read and written in HBM, caches ignored
};

enum class CommGroup : uint8_t { kTensor, kContext, kExpert };
enum class CommKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kRing,  // (members - 1) exchanges with a neighbour, each `bytes`
};

struct OpComm {
  OpPass pass = OpPass::kForward;
  CommKind kind = CommKind::kAllReduce;
  CommGroup group = CommGroup::kTensor;
  int members = 1;
  // Whole buffer: of an all-gather what a device has afterwards, of a
  // reduce-scatter before; of an all-to-all what a device sends in all.
  double bytes = 0;
  // Runs beside the computation of this op (ring attention), not before it.
  bool overlaps = false;
  // Beside it in so many pieces, one of which nothing hides; 0: all of it may
  // be hidden.
  int pieces = 0;
  // Part of the computation that it may run beside.
  double beside_part = 1;
  // One of PyTorch's functional collectives: compiled code waits for it where
  // it begins, eager code where its result is used.
  bool is_functional = false;
  // Runs beside the passes of another microbatch.
  bool beside_passes = false;
  // Copies of a token in the `bytes` of an all-to-all that sends it once to a
  // device, and between nodes once to a node (ExpertDispatch::kOnce); and the
  // nodes that they may go to (0: any). 0 copies: all are sent.
  double copies = 0;
  int most_nodes = 0;
};

// What a choice of Recompute short of full does to an op.
struct Rerun {
  double part = 0;      // of its forward that runs again before B
  double backward = 0;  // given back of ModelOp::saved_until_backward, bytes
  double weight = 0;    // given back of saved_until_weight, bytes
};

// The op between the attention of a layer and what is behind it.
inline constexpr char kFeedForwardNorm[] = "feed-forward norm";
// What PyTorch's ring makes of the parts of attention (ContextExchange).
inline constexpr char kContextMerges[] = "context merges";
// Execution::repeats_keys.
inline constexpr char kRepeatedKeys[] = "repeated keys and values";

// What of a linear layer's matrix tensor parallelism splits.
enum class TensorSplit : uint8_t { kNone, kOutputs, kInputs };

struct ModelOp {
  std::string name;  // "qkv", "attention", "gate-up"
  OpClass kind = OpClass::kGemm;
  // GEMM of the forward: tokens m, outputs n, inputs k, `count` of them.
  double m = 0, n = 0, k = 0, count = 1;
  OpWork work[kNumOpPasses];
  std::vector<OpComm> comms;

  double parameters = 0;   // on this device
  bool is_expert = false;  // its parameters are sharded by expert_shards()
  bool is_frozen = false;  // no gradient, no optimizer state, no W
  bool is_tied = false;    // its parameters are those of the embedding
  TensorSplit split = TensorSplit::kNone;
  bool has_weight_pass = false;  // W does something
  // A product in 16 bit whatever TrainingSpec::precision is: the router, and
  // the head, which is no module of Transformer Engine.
  bool is_wide = false;

  // Activations kept from F on, bytes; each belongs to the op that makes it
  // or, where an elementwise op makes it, to the op that reads it.
  double saved_until_backward = 0;  // freed when B has passed the op
  double saved_until_weight = 0;    // what becomes input of a linear layer
  // Queries, keys and values in the first of both.
  double attention_inputs = 0;
  // Gradient of the output, kept from B to W where W is a pass of its own.
  double held_for_weight = 0;
  // Beyond saved ones, while the op runs: outputs on their way to the next op,
  // gathered inputs, gradients. The gradient of the residual stream is not in
  // them; a boundary's bytes of it are there throughout a layer's backward. For
  // B and W alone; where both run as one, tensors that they share are there
  // once.
  double forward_workspace = 0;
  double backward_workspace = 0;
  double weight_workspace = 0;
  double shared_workspace = 0;
  std::array<Rerun, 3> reruns;  // RerunOf
  // Index in its block of the op whose backward begins with all that
  // Recompute::kSelective runs again of this one's module; -1: its own, or that
  // of the op behind it.
  int remade_at = -1;
  // Nothing that the backward of its layer needs comes out of it or behind it,
  // so that recomputation may stop in front of it.
  bool is_last_needed = false;
  OpPart part = OpPart::kDense;
  // Tokens that a query of attention looks back on; 0: all before.
  double window = 0;
  // Width inside of one gated expert, for its products and the activation
  // between them.
  double inner = 0;
  bool is_gate_up = false;  // the first of both products
  // Pieces that rows of experts are cut into and joined in another order; 0:
  // they are not.
  double chunks = 0;
  // Outputs of each of the products of one input that some frameworks have in
  // place of one: queries, keys and values; gate and up. All 0: it is one.
  std::array<double, 3> products{};

  // How many it is where they are not fused.
  int apart() const {
    return std::max(1, static_cast<int>(std::count_if(
                           products.begin(), products.end(),
                           [](double outputs) { return outputs > 0; })));
  }
  const OpWork& Work(OpPass pass) const { return work[static_cast<int>(pass)]; }
  // `recompute`: neither none nor full.
  Rerun& RerunOf(Recompute recompute) { return reruns[IndexOf(recompute)]; }
  const Rerun& RerunOf(Recompute recompute) const {
    return reruns[IndexOf(recompute)];
  }

 private:
  static size_t IndexOf(Recompute recompute) {
    return static_cast<size_t>(recompute) -
           static_cast<size_t>(Recompute::kSelective);
  }
};

inline Precision PrecisionOf(const TrainingSpec& training, const ModelOp& op) {
  return op.is_wide ? Precision::kBf16 : training.precision;
}

inline bool IsLinear(const ModelOp& op) {
  return op.kind == OpClass::kGemm || op.kind == OpClass::kGroupedGemm;
}
// Its weights have no copy in 16 bit.
inline bool IsNarrowWeight(const TrainingSpec& training, const ModelOp& op) {
  return training.narrow_weights && IsLinear(op) && !op.is_wide;
}

// In the order of the forward. `layer` is that of layers (frozen ones differ).
std::vector<ModelOp> BlockOps(const ModelSpec& model,
                              const TrainingSpec& training, BlockKind kind,
                              int64_t layer = 0);

// Bytes of the activations, or their gradient, that one device sends to the
// next stage for one slice of a microbatch.
double BoundaryBytes(const ModelSpec& model, const TrainingSpec& training);

// The part of the forward of `op` that the backward runs again: 0 to 1.
// `stops_early`: TrainingSpec::stops_early.
double RecomputedPart(const ModelOp& op, Recompute recompute,
                      bool stops_early = false);

// The same of an exchange of its forward. What is kept of single operations are
// outputs, those of reduce-scatters and all-to-alls among them; inputs are
// gathered again, each as a whole (torchtitan).
double CommRecomputedPart(const ModelOp& op, const OpComm& comm,
                          Recompute recompute, bool stops_early = false);

// Bytes of them that cross a hop: where the receivers of a tensor-parallel
// group gather (TrainingSpec::scatter_gather), one part of tp.
double HopBytes(const ModelSpec& model, const TrainingSpec& training);

// The operations of each block of one model under one training, made once each.
// Safe for several threads; what it gives out stays as long as it.
class Inventory {
 public:
  Inventory(ModelSpec model, TrainingSpec training)
      : model_(std::move(model)), training_(std::move(training)) {}

  const ModelSpec& model() const { return model_; }
  const TrainingSpec& training() const { return training_; }

  // Layers of a kind with one number have the same operations. BlockOps asks no
  // more of `layer`.
  int64_t ClassOf(int64_t layer) const { return model_.ClassOf(layer); }

  // Those of BlockOps.
  const std::vector<ModelOp>& Ops(BlockKind kind, int64_t layer) const {
    return ops_.Get({kind, ClassOf(layer)},
                    [&] { return BlockOps(model_, training_, kind, layer); });
  }

 private:
  const ModelSpec model_;
  const TrainingSpec training_;
  mutable Kept<std::vector<ModelOp>, std::pair<BlockKind, int64_t>> ops_;
};

}  // namespace pipewright
