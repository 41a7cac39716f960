#include "sim/model/ops.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/check.h"
#include "sim/model/ops_builder.h"

namespace pipewright {
namespace {

// Layers below the first trained parameter: they only run forward.
bool OnlyForward(const ModelSpec& model, BlockKind kind, int64_t layer) {
  if (model.frozen_layers == 0 || model.lora_rank > 0) return false;
  switch (kind) {
    case BlockKind::kEmbedding:
      return true;
    case BlockKind::kDenseLayer:
    case BlockKind::kExpertLayer:
      return layer < model.frozen_layers;
    case BlockKind::kMtpLayer:
    case BlockKind::kHead:
      return false;
  }
  return false;
}

void KeepNothing(std::vector<ModelOp>& ops) {
  for (ModelOp& op : ops) {
    op.work[static_cast<int>(OpPass::kBackwardInput)] = {};
    op.work[static_cast<int>(OpPass::kBackwardWeight)] = {};
    op.has_weight_pass = false;
    op.saved_until_backward = op.saved_until_weight = 0;
    op.reruns = {};
    op.held_for_weight = op.backward_workspace = 0;
    op.weight_workspace = op.shared_workspace = 0;
    std::vector<OpComm> forward;
    for (const OpComm& comm : op.comms) {
      if (comm.pass == OpPass::kForward) forward.push_back(comm);
    }
    op.comms = std::move(forward);
  }
}

void AddMixer(OpsBuilder& builder, Mixer mixer, int64_t layer) {
  const ModelSpec& model = builder.model();
  const size_t first = builder.size();
  switch (mixer) {
    case Mixer::kAttention:
      builder.set_window(model.WindowOf(layer));
      if (!model.has_mla()) {
        AddAttention(builder);
        break;
      }
      AddLatentAttention(builder);
      builder.MarkModule(RecomputeModule::kNorms, first,
                         first + (model.pre_norms ? 1 : 0));
      break;
    case Mixer::kMamba:
      AddMamba(builder);
      break;
    case Mixer::kDelta:
      AddDelta(builder);
      break;
    case Mixer::kNone:
      return;
  }
  builder.MarkAll(OpPart::kAttention);
}

void AddLayer(OpsBuilder& builder, bool has_experts, int64_t layer) {
  const ModelSpec& model = builder.model();
  const size_t norms = model.pre_norms ? 1 : 0;  // in front of each part
  const LayerKind kind = model.KindOf(layer);
  AddMixer(builder, kind.mixer, layer);
  if (kind.feed_forward == FeedForward::kNone) return;
  const size_t feed_forward = builder.size();
  builder.Input(kFeedForwardNorm);
  if (has_experts) {
    AddExperts(builder);
    builder.MarkModule(RecomputeModule::kExperts, feed_forward + 1);
    builder.MarkModule(RecomputeModule::kNorms, feed_forward,
                       feed_forward + norms);
  } else {
    AddFeedForward(builder, AsDouble(model.ffn_hidden), "");
    builder.MarkModule(RecomputeModule::kDense, feed_forward + 1 - norms);
  }
  builder.PostNorm("feed-forward post norm");
  builder.Residual("feed-forward residual");
}

void AddEmbedding(OpsBuilder& builder) {
  const ModelSpec& model = builder.model();
  const double hidden = AsDouble(model.hidden);
  const double tensor =
      OpsBuilder::kElement * builder.residual_tokens() * hidden;
  ModelOp op;
  op.name = "embedding";
  op.kind = OpClass::kLookup;
  op.k = hidden;
  op.work[static_cast<int>(OpPass::kForward)] = {.bytes = 2 * tensor};
  // Adds rows of gradients into the table.
  op.work[static_cast<int>(OpPass::kBackwardInput)] = {.bytes = 3 * tensor};
  op.parameters = AsDouble(model.vocabulary) * hidden / builder.tp() +
                  AsDouble(model.positions + model.token_types) * hidden;
  op.is_frozen = builder.is_frozen();
  op.saved_until_backward = 8 * builder.tokens();  // token numbers, int64
  op.forward_workspace = tensor;
  // Its weight gradient is made whole, in the precision of the weights, before
  // it is added to the accumulated one (torch.nn.functional.embedding).
  op.backward_workspace =
      tensor + (op.is_frozen
                    ? 0
                    : builder.training().weight_bytes *
                          AsDouble(model.vocabulary) * hidden / builder.tp());
  if (builder.training().tp > 1) {
    const double whole = OpsBuilder::kElement * builder.tokens() * hidden;
    const bool parts = builder.training().sequence_parallel;
    op.comms.push_back(
        {.pass = OpPass::kForward,
         .kind = parts ? CommKind::kReduceScatter : CommKind::kAllReduce,
         .members = builder.training().tp,
         .bytes = whole});
    if (parts) {
      op.comms.push_back({.pass = OpPass::kBackwardInput,
                          .kind = CommKind::kAllGather,
                          .members = builder.training().tp,
                          .bytes = whole});
    }
  }
  builder.Add(std::move(op));
  if (model.embedding_norm) {
    builder.Norm("embedding norm", hidden, builder.residual_tokens(), false);
  }
  if (model.dropout) builder.Residual("embedding dropout");
}

// Bytes of a logit that the loss reads and writes, keeps and needs.
struct LossBytes {
  double forward, backward, kept, forward_workspace, backward_workspace;
};

// Counted in Transformer Engine's, Megatron-LM's and PyTorch's cross-entropy.
// [framework source, bytes]
LossBytes LossBytesOf(const TrainingSpec& training) {
  const double element = OpsBuilder::kElement;
  if (training.fused_cross_entropy) {
    return {2 * element, 2 * element, element, 0, 0};
  }
  if (!training.plain_cross_entropy) {
    return {3 * element + 3 * 4, element + 2 * 4, 4, element, element};
  }
  // PyTorch's loss in parallel (torch/distributed/tensor/parallel/loss.py,
  // _log_softmax, _nll_loss_and_log_softmax_backward) has a kernel for each
  // step: a cast, the largest, the difference, its exponential, the sum, the
  // result; zeros, the exponential, a sum, a product, the cast back. Beside the
  // result stand the logits, their copy in fp32 and one of both steps before;
  // in B the zeros and two steps.
  if (training.tp > 1) {
    return {element + 8 * 4 + 4, 8 * 4 + 4 + element + 4, 4, element + 2 * 4,
            3 * 4};
  }
  // PyTorch's cross_entropy on logits.float(): a cast; log_softmax, which reads
  // its row for the largest, for the sum and once more, as a row does not fit
  // on chip; backward: the gradient of the loss (zeros, filled at the target),
  // that of log_softmax, which reads both of its inputs and the first one
  // twice, and the cast back (aten/src/ATen/native/cuda/SoftMax.cu,
  // LossNLL.cu). Kept: the result of log_softmax. Beside it stand the fp32 copy
  // of the logits, later both gradients.
  return {element + 4 + 4 * 4, 4 + 4 * 4 + 4 + element, 4, element + 4, 2 * 4};
}

// `logits`: the width of the vocabulary on this device.
void AddLoss(OpsBuilder& builder, double vocabulary) {
  const double logits = builder.tokens() * vocabulary;
  const LossBytes bytes = LossBytesOf(builder.training());
  ModelOp op;
  op.name = "loss";
  op.kind = OpClass::kLoss;
  op.work[static_cast<int>(OpPass::kForward)] = {.bytes =
                                                     bytes.forward * logits};
  op.work[static_cast<int>(OpPass::kBackwardInput)] = {.bytes = bytes.backward *
                                                                logits};
  // The softmax, over the logits or in fp32 beside them.
  op.saved_until_backward = bytes.kept * logits;
  op.forward_workspace = bytes.forward_workspace * logits;
  op.backward_workspace = bytes.backward_workspace * logits;
  if (builder.training().tp > 1) {
    // Largest logit, its own logit and sum of each token, in fp32.
    op.comms.push_back({.pass = OpPass::kForward,
                        .kind = CommKind::kAllReduce,
                        .members = builder.training().tp,
                        .bytes = 3 * 4 * builder.tokens()});
  }
  builder.Add(std::move(op));
}

void AddHead(OpsBuilder& builder) {
  const ModelSpec& model = builder.model();
  const double hidden = AsDouble(model.hidden);
  if (model.final_norm) {
    builder.Norm("last norm", hidden, builder.residual_tokens(), true);
  }
  if (model.masked_lm_head) {
    builder.Linear("head transform", hidden, hidden,
                   OpsBuilder::Split::kReplicated, true, false);
    builder.Norm("head norm", hidden, builder.residual_tokens(), true);
  }
  ModelOp& output =
      builder.Linear("output head", hidden, AsDouble(model.vocabulary),
                     OpsBuilder::Split::kColumn, model.masked_lm_head, false);
  output.is_tied = model.tied_embeddings;
  if (model.pooler) {
    // Reads the first token of each sample only.
    ModelOp pooler;
    pooler.name = "pooler";
    pooler.kind = OpClass::kGemm;
    pooler.parameters = hidden * hidden + hidden;
    builder.Add(std::move(pooler));
  }
  AddLoss(builder, AsDouble(model.vocabulary) / builder.tp());
}

void AddMtp(OpsBuilder& builder) {
  const ModelSpec& model = builder.model();
  const double hidden = AsDouble(model.hidden);
  const double tokens = builder.residual_tokens();
  builder.Norm("prediction norm", hidden, tokens, true);
  builder.Norm("prediction embedding norm", hidden, tokens, true);
  builder.Linear("prediction projection", 2 * hidden, hidden,
                 OpsBuilder::Split::kReplicated, false, !model.lora_qkv_only);
  AddLayer(builder, model.has_experts(), model.layers);
  builder.set_is_head();
  builder.Norm("prediction last norm", hidden, tokens, true);
  // The head is the model's own; its work and its logits come again.
  ModelOp& output =
      builder.Linear("prediction head", hidden, AsDouble(model.vocabulary),
                     OpsBuilder::Split::kColumn, false, false);
  output.parameters = 0;
  AddLoss(builder, AsDouble(model.vocabulary) / builder.tp());
}

}  // namespace

absl::string_view BlockKindName(BlockKind kind) {
  switch (kind) {
    case BlockKind::kEmbedding:
      return "embedding";
    case BlockKind::kDenseLayer:
      return "layer";
    case BlockKind::kExpertLayer:
      return "expert layer";
    case BlockKind::kMtpLayer:
      return "prediction layer";
    case BlockKind::kHead:
      return "head";
  }
  return "";
}

std::vector<ModelOp> BlockOps(const ModelSpec& model,
                              const TrainingSpec& training, BlockKind kind,
                              int64_t layer) {
  const bool only_forward = OnlyForward(model, kind, layer);
  OpsBuilder builder(model, training, only_forward);
  if (kind == BlockKind::kHead) builder.set_is_head();
  switch (kind) {
    case BlockKind::kEmbedding:
      AddEmbedding(builder);
      break;
    case BlockKind::kDenseLayer:
      AddLayer(builder, false, layer);
      break;
    case BlockKind::kExpertLayer:
      AddLayer(builder, true, layer);
      break;
    case BlockKind::kMtpLayer:
      AddMtp(builder);
      break;
    case BlockKind::kHead:
      AddHead(builder);
      break;
  }
  std::vector<ModelOp> ops = std::move(builder).Take();
  if (kind != BlockKind::kEmbedding && kind != BlockKind::kHead) {
    MarkSelective(model, ops);
  }
  if (only_forward) KeepNothing(ops);
  return ops;
}

double BoundaryBytes(const ModelSpec& model, const TrainingSpec& training) {
  const double whole =
      OpsBuilder::kElement * training.tokens() * AsDouble(model.hidden);
  return training.sequence_parallel ? whole / training.tp : whole;
}

double HopBytes(const ModelSpec& model, const TrainingSpec& training) {
  const double bytes = BoundaryBytes(model, training);
  return training.gathers_hops() ? bytes / training.tp : bytes;
}

double RecomputedPart(const ModelOp& op, Recompute recompute,
                      bool stops_early) {
  switch (recompute) {
    case Recompute::kNone:
      return 0;
    case Recompute::kSelective:
    case Recompute::kNormActivation:
    case Recompute::kOpSelective:
      return op.RerunOf(recompute).part;
    case Recompute::kFull:
      return stops_early && op.is_last_needed ? 0 : 1;
  }
  return 0;
}

double CommRecomputedPart(const ModelOp& op, const OpComm& comm,
                          Recompute recompute, bool stops_early) {
  if (recompute == Recompute::kOpSelective) {
    if (comm.kind == CommKind::kReduceScatter) return 0;
    if (comm.kind == CommKind::kAllToAll) return 0;
    if (comm.kind == CommKind::kAllGather) return op.is_last_needed ? 0 : 1;
  }
  return RecomputedPart(op, recompute, stops_early);
}

// What torchtitan's selective recomputation by operations keeps of a layer:
// outputs of attention, of exchanges that scatter, and of every second matrix
// product, the first one included; all else runs again, grouped products and
// the router's among it (torchtitan/models/llama4/parallelize.py,
// _op_sac_save_list; per_op_sac_force_recompute_mm_shapes_by_fqns). The output
// of the layer is the input of the next one, so what makes it does not run
// again.

namespace {

// Matrix products that stand in one op: torchtitan has one module each for
// queries, keys and values, and for both inputs of a gated activation.
int ProductsOf(const ModelOp& op, const ModelSpec& model) {
  if (op.name == "qkv") return 3;
  const bool is_pair =
      model.gated && op.name.find("gate-up") != std::string::npos;
  return is_pair ? 2 : 1;
}

// One whose output may be kept.
bool IsCounted(const ModelOp& op) {
  return op.kind == OpClass::kGemm && op.part != OpPart::kRouter;
}

// The outputs of an op with several products are of different widths: parts of
// the whole by product.
double WidthOf(const ModelOp& op, const ModelSpec& model, int product) {
  if (op.name != "qkv") return 1.0 / ProductsOf(op, model);
  const double keys = AsDouble(model.kv_heads);
  const double queries = AsDouble(model.heads) * (model.attention_gate ? 2 : 1);
  return (product == 0 ? queries : keys) / (queries + 2 * keys);
}

}  // namespace

void MarkSelective(const ModelSpec& model, std::vector<ModelOp>& ops) {
  size_t last = 0;
  for (size_t index = 0; index < ops.size(); ++index) {
    if (IsLinear(ops[index])) last = index;
  }
  int count = 0;
  const bool repeats =
      std::any_of(ops.begin(), ops.end(),
                  [](const ModelOp& op) { return op.name == kRepeatedKeys; });
  for (size_t index = 0; index < ops.size(); ++index) {
    ModelOp& op = ops[index];
    op.is_last_needed = index >= last;
    Rerun& rerun = op.RerunOf(Recompute::kOpSelective);
    rerun.weight = op.RerunOf(Recompute::kNormActivation).weight;
    if (op.kind == OpClass::kAttention) {
      // Gives back, of queries, keys and values, the second product's: the
      // keys. Of copies for each query head all but the values' product.
      const double width = AsDouble(model.QueryDim() + model.ValueDim());
      const double few = AsDouble(model.kv_heads) * width;
      const double keys = repeats ? AsDouble(model.heads) * width : few;
      const double kept = AsDouble(model.heads) * AsDouble(model.QueryDim());
      const double flat = op.saved_until_backward * keys / (keys + kept);
      rerun.backward = (1 - 0.5 * few / keys) * flat;
    } else if (op.name == kContextMerges) {
      // A part of the attention, whose output is kept.
    } else if (IsCounted(op)) {
      double again = 0;
      for (int product = 0; product < ProductsOf(op, model); ++product) {
        if (++count % 2 == 0) again += WidthOf(op, model, product);
      }
      rerun.part = op.is_last_needed ? 0 : again;
    } else {
      rerun.part = op.is_last_needed ? 0 : 1;
      // What goes into the activation comes out of the product in front of it.
      const bool reads_product = index > 0 && IsLinear(ops[index - 1]) &&
                                 op.kind == OpClass::kElementwise &&
                                 op.saved_until_weight > 0;
      rerun.backward =
          op.saved_until_backward *
          (reads_product ? ops[index - 1].RerunOf(Recompute::kOpSelective).part
                         : 1);
    }
  }
  // The input of the layer is kept.
  if (!ops.empty()) ops.front().RerunOf(Recompute::kOpSelective).backward = 0;
}

}  // namespace pipewright
