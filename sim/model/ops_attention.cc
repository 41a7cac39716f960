// Attention: multi-head, grouped-query and latent.
#include <algorithm>

#include "sim/model/ops_builder.h"

namespace pipewright {
namespace {

// Queries of this device's slice against the keys of the whole sequence.
struct Core {
  double scores;  // entries of all heads that count, a causal mask halves
  double stored;  // entries that an unfused kernel stores
  double flops;   // for one pass over them forward: two products
};

Core CoreOf(const OpsBuilder& builder) {
  const ModelSpec& model = builder.model();
  Core core;
  const double sequence = AsDouble(builder.training().sequence);
  core.stored = builder.tokens() * sequence * builder.Heads();
  core.scores = core.stored * (model.causal ? 0.5 : 1);
  const TrainingSpec& training = builder.training();
  // All wait for the device whose queries come last: of cp parts before and at
  // its own it meets all but half of one.
  if (model.causal && training.cp > 1 && !training.execution.context_balanced &&
      model.window == 0 &&
      training.execution.context != ContextExchange::kAllToAll) {
    core.scores *= 2 - 1.0 / training.cp;
  }
  // The first tokens of a sequence have fewer before them than the window.
  if (const double window = builder.window(); window > 0 && window < sequence) {
    const double part = window / sequence;
    if (model.chunked_window) {
      core.scores *= part;
    } else {
      core.scores = core.stored * (model.causal ? part * (1 - part / 2)
                                                : std::min(1.0, 2 * part));
    }
  }
  core.flops = 2 * core.scores * AsDouble(model.QueryDim() + model.ValueDim());
  return core;
}

void AddContextComm(const OpsBuilder& builder, OpPass pass, CommKind kind,
                    double bytes, ModelOp& op) {
  op.comms.push_back({.pass = pass,
                      .kind = kind,
                      .group = CommGroup::kContext,
                      .members = builder.training().cp,
                      .bytes = bytes});
}

// All keys and values come before the attention, in B once more, and their
// gradients are summed where they belong (Llama 3, arXiv 2407.21783, section
// 3.3.2).
void AddGathered(const OpsBuilder& builder, double key_value_bytes,
                 ModelOp& op) {
  const double whole = key_value_bytes * builder.training().cp;
  AddContextComm(builder, OpPass::kForward, CommKind::kAllGather, whole, op);
  AddContextComm(builder, OpPass::kBackwardInput, CommKind::kAllGather, whole,
                 op);
  AddContextComm(builder, OpPass::kBackwardInput, CommKind::kReduceScatter,
                 whole, op);
}

// Queries, keys and values by heads, and the context by tokens again; in B the
// gradients of each (DeepSpeed-Ulysses, arXiv 2309.14509, section 3.2).
void AddByHeads(const OpsBuilder& builder, double query_key_value_bytes,
                double context_bytes, ModelOp& op) {
  for (const OpPass pass : {OpPass::kForward, OpPass::kBackwardInput}) {
    AddContextComm(builder, pass, CommKind::kAllToAll, query_key_value_bytes,
                   op);
    AddContextComm(builder, pass, CommKind::kAllToAll, context_bytes, op);
  }
}

// Keys and values go round the ring once in F; in B with their gradients.
void AddRing(const OpsBuilder& builder, double key_value_bytes, ModelOp& op) {
  const int members = builder.training().cp;
  op.comms.push_back({.pass = OpPass::kForward,
                      .kind = CommKind::kRing,
                      .group = CommGroup::kContext,
                      .members = members,
                      .bytes = key_value_bytes,
                      .overlaps = true});
  op.comms.push_back({.pass = OpPass::kBackwardInput,
                      .kind = CommKind::kRing,
                      .group = CommGroup::kContext,
                      .members = members,
                      .bytes = 2 * key_value_bytes,
                      .overlaps = true});
}

// PyTorch's ring (torch/distributed/tensor/experimental/_attention.py,
// _templated_ring_attention). The first part needs nothing of others, so that
// a gather runs beside it alone; hops run beside all parts but the last one.
// Gradients of keys and values, in fp32, start behind each part and run beside
// the next one, the last ones beside nothing.
void AddTorchRing(const OpsBuilder& builder, double key_value_bytes,
                  ModelOp& op) {
  const int members = builder.training().cp;
  const double hops = 1 - 1.0 / members;
  const bool gathers =
      builder.training().execution.context == ContextExchange::kTorchGather;
  const auto add = [&](OpPass pass, CommKind kind, double bytes) {
    AddContextComm(builder, pass, kind, bytes, op);
    op.comms.back().is_functional = true;
    return &op.comms.back();
  };
  for (const OpPass pass : {OpPass::kForward, OpPass::kBackwardInput}) {
    OpComm* const keys =
        gathers ? add(pass, CommKind::kAllGather, members * key_value_bytes)
                : add(pass, CommKind::kRing, key_value_bytes);
    keys->overlaps = true;
    keys->beside_part = gathers ? 1.0 / members : hops;
  }
  const double gradients = 4 / OpsBuilder::kElement * key_value_bytes;
  OpComm* const sums = add(OpPass::kBackwardInput, CommKind::kRing, gradients);
  sums->overlaps = true;
  sums->beside_part = hops;
  // One step more, as a ring of all members has it.
  add(OpPass::kBackwardInput, CommKind::kRing, gradients / (members - 1));
}

// Bytes that compiled code moves besides (_SDPAMerger, and the sums of
// _templated_ring_attention_backward). Each further part reads the fp32 sum and
// its own result in bf16 and writes the sum. Keys and values are laid out for
// the exchange, once if they are gathered. Eager code has a kernel for each
// step of it (FrameworkFactor). Counted. [framework source, bytes]
constexpr double kMerged = 4 + 2 + 4;
constexpr double kMergedAtEnds = 2;  // the first in bf16, the last one cast
constexpr double kSummedAtEnd = 4 + 2;
// Kernels of a part, forward and backward. [framework source]
constexpr double kMergeKernels = 4;

void AddTorchMerges(OpsBuilder& builder, double queries, double key_values,
                    double context) {
  const double parts = builder.training().cp;
  const bool gathers =
      builder.training().execution.context == ContextExchange::kTorchGather;
  const double element = OpsBuilder::kElement;
  const double laid_out = (gathers ? 1 : parts - 1) * 2 * key_values;
  ModelOp& op = builder.Elementwise(
      kContextMerges,
      laid_out + context / element * ((parts - 1) * kMerged + kMergedAtEnds),
      laid_out +
          (queries + key_values) / element * (parts * kMerged + kSummedAtEnd));
  op.count = parts * kMergeKernels;
}

// Unfused: two products, with softmax and dropout between them. Scores are
// stored and not halved by a causal mask: five bytes each with dropout, two
// without (arXiv 2205.05198, section 4.1: softmax 2, mask 1, dropped 2).
void AddUnfusedScores(OpsBuilder& builder) {
  const Core core = CoreOf(builder);
  const ModelSpec& model = builder.model();
  const bool dropout = model.dropout;
  const double samples = builder.training().microbatch_size;
  ModelOp products;
  products.name = "attention products";
  products.kind = OpClass::kBatchedGemm;
  products.m = builder.tokens() / samples;
  products.n = AsDouble(builder.training().sequence);
  products.k = 0.5 * AsDouble(model.QueryDim() + model.ValueDim());
  products.count = samples * builder.Heads();
  const double flops = core.flops * core.stored / core.scores;
  // Each product reads or writes the scores once.
  const double scores = OpsBuilder::kElement * core.stored;
  products.work[static_cast<int>(OpPass::kForward)] = {flops, 2 * scores};
  products.work[static_cast<int>(OpPass::kBackwardInput)] = {2 * flops,
                                                             4 * scores};
  builder.Add(products);

  ModelOp softmax;
  softmax.name = "attention scores";
  softmax.kind = OpClass::kElementwise;
  softmax.saved_until_backward = (dropout ? 5 : 2) * core.stored;
  // Softmax in and out; dropout in, mask, out. Backward: gradient in, softmax
  // in, out; dropout in, mask, out.
  softmax.work[static_cast<int>(OpPass::kForward)] = {
      .bytes = (dropout ? 9 : 4) * core.stored};
  softmax.work[static_cast<int>(OpPass::kBackwardInput)] = {
      .bytes = (dropout ? 11 : 6) * core.stored};
  softmax.forward_workspace = scores;
  softmax.backward_workspace = 2 * scores;
  builder.Add(softmax);
}

// From queries, keys and values (kept until B) to the context (kept until the
// W of the projection behind it).
ModelOp& AddCore(OpsBuilder& builder, double key_value_width, double rows) {
  const ModelSpec& model = builder.model();
  const bool flash = builder.training().flash_attention;
  const size_t first = builder.size();
  if (!flash) AddUnfusedScores(builder);
  const Core core = CoreOf(builder);
  const double tokens = builder.tokens();
  const double heads = builder.Heads();
  const double element = OpsBuilder::kElement;
  const double queries = element * tokens * heads * AsDouble(model.QueryDim());
  const double context = element * tokens * heads * AsDouble(model.ValueDim());
  const double keys_and_values = element * tokens * key_value_width;
  ModelOp op;
  op.name = "attention";
  op.kind = OpClass::kAttention;
  op.m = tokens;
  op.n = AsDouble(builder.training().sequence);
  // Between queries and values, where they differ.
  op.k = 0.5 * AsDouble(model.QueryDim() + model.ValueDim());
  op.count = rows;
  if (flash) {
    // Five products in the backward against two: the scores are computed
    // again from the sums that the forward kept.
    op.work[static_cast<int>(OpPass::kForward)] = {
        core.flops, queries + keys_and_values + context};
    op.work[static_cast<int>(OpPass::kBackwardInput)] = {
        2.5 * core.flops, 3 * (queries + keys_and_values + context)};
  }
  op.attention_inputs = queries + keys_and_values;
  // One fp32 sum a row and head.
  op.saved_until_backward =
      op.attention_inputs + (flash ? 4 * tokens * heads : 0);
  if (model.attention_sinks) {
    op.parameters = heads;
    op.is_frozen = builder.is_frozen();
    // The sum of each row and what its gradient is made of, in fp32.
    op.work[static_cast<int>(OpPass::kBackwardInput)].bytes +=
        2 * 4 * tokens * heads;
  }
  // The output is kept as the kernel made it besides what the projection keeps
  // if they differ: split by heads with context parallelism (Transformer Engine
  // from release 2.8 on), in 16 bit if the projection keeps its own cast of it
  // (FusedAttnFunc.forward, Linear.forward).
  const bool casts = flash && builder.operand_bytes() < element &&
                     builder.training().keeps_narrow_weights &&
                     !builder.training().execution.fp8_attention;
  // Attention's own backward reads it, too.
  const bool projected =
      builder.KeepsInputs(!model.lora_qkv_only) && !model.attention_gate;
  if (builder.training().cp > 1 || casts || !projected) {
    op.saved_until_backward += context;
  }
  op.saved_until_weight =
      projected ? context * builder.operand_bytes() / element : 0;
  op.forward_workspace = 0;
  op.backward_workspace = queries + keys_and_values + context;
  if (builder.window() < op.n) op.window = builder.window();
  const ContextExchange exchange = builder.training().execution.context;
  const bool is_torch = builder.training().cp > 1 && IsTorchRing(exchange);
  const bool is_torch_gathered = exchange == ContextExchange::kTorchGather;
  if (builder.training().cp > 1) {
    switch (exchange) {
      case ContextExchange::kRing:
        AddRing(builder, keys_and_values, op);
        break;
      case ContextExchange::kAllGather:
        AddGathered(builder, keys_and_values, op);
        break;
      case ContextExchange::kAllToAll:
        AddByHeads(builder, queries + keys_and_values, context, op);
        break;
      case ContextExchange::kTorchGather:
      case ContextExchange::kTorchRotate: {
        AddTorchRing(builder, keys_and_values, op);
        // Keys and values of others, and what is summed up in fp32: the result;
        // in B the gradients of queries, and of keys and values as they are,
        // as they come and as they go.
        const double others =
            (is_torch_gathered ? builder.training().cp : 2) * keys_and_values;
        op.forward_workspace = others + 2 * context;
        op.backward_workspace += others + 2 * queries + 3 * 2 * keys_and_values;
        break;
      }
    }
  }
  const size_t core_at = builder.size();
  builder.Add(op);
  if (is_torch) AddTorchMerges(builder, queries, keys_and_values, context);
  builder.MarkModule(RecomputeModule::kCoreAttention, first);
  return builder.At(core_at);
}

// Weighs what comes out by a sigmoid: keeps the gate, and what comes out with
// the attention itself.
void AddGate(OpsBuilder& builder) {
  const ModelSpec& model = builder.model();
  const double context = OpsBuilder::kElement * builder.tokens() *
                         builder.Heads() * AsDouble(model.ValueDim());
  ModelOp& op = builder.Elementwise("attention gate", 3 * context, 5 * context);
  op.saved_until_backward = context;
  if (builder.KeepsInputs(!model.lora_qkv_only)) {
    op.saved_until_weight =
        context * builder.operand_bytes() / OpsBuilder::kElement;
  }
  op.RerunOf(Recompute::kNormActivation) = {1, 0, op.saved_until_weight};
  op.forward_workspace = context;
  op.backward_workspace = 2 * context;
}

}  // namespace

void AddAttention(OpsBuilder& builder) {
  const ModelSpec& model = builder.model();
  const double hidden = AsDouble(model.hidden);
  const double head_dim = AsDouble(model.HeadDim());
  const double tp = builder.tp();
  builder.Input("attention norm");
  // KvHeads is that of a device, which may be a copy.
  const double queries =
      builder.Heads() * head_dim * (model.attention_gate ? 2 : 1);
  const double keys = builder.KvHeads() * head_dim;
  builder
      .Linear("qkv", hidden, (queries + 2 * keys) * tp,
              OpsBuilder::Split::kColumn, model.qkv_bias)
      .products = {queries, keys, keys};
  const double rotated = OpsBuilder::kElement * builder.tokens() *
                         (builder.Heads() + builder.KvHeads()) * head_dim;
  if (model.qk_norm) {
    ModelOp& norm =
        builder.Elementwise("query and key norm", 2 * rotated, 4 * rotated);
    const double heads =
        model.qk_norm_whole ? builder.Heads() + builder.KvHeads() : 2;
    norm.parameters = model.qk_norm_weights ? heads * head_dim : 0;
    if (model.layer_norm) norm.parameters *= 2;
    norm.is_frozen = builder.is_frozen();
    norm.saved_until_backward = rotated;
  }
  if (model.positions == 0 && model.rotary_dim != 0) {
    const double part =
        model.rotary_dim > 0 ? AsDouble(model.rotary_dim) / head_dim : 1;
    builder.Elementwise("rotary embedding", 2 * part * rotated,
                        2 * part * rotated);
  }
  double key_heads = builder.KvHeads();
  if (builder.training().execution.repeats_keys &&
      model.HasKeyGroups(builder.training().tp)) {
    const double few =
        OpsBuilder::kElement * builder.tokens() * 2 * key_heads * head_dim;
    key_heads = builder.Heads();
    const double all =
        OpsBuilder::kElement * builder.tokens() * 2 * key_heads * head_dim;
    // Backward sums the gradients of the copies.
    builder.Elementwise(kRepeatedKeys, few + all, few + all).count = 2;
  }
  AddCore(builder, 2 * key_heads * head_dim, builder.Heads());
  if (model.attention_gate) AddGate(builder);
  builder.Linear("attention projection", AsDouble(model.heads) * head_dim,
                 hidden, OpsBuilder::Split::kRow,
                 model.bias || model.projection_bias, !model.lora_qkv_only);
  builder.PostNorm("attention post norm");
  builder.Residual("attention residual");
}

void AddLatentAttention(OpsBuilder& builder) {
  const ModelSpec& model = builder.model();
  using Split = OpsBuilder::Split;
  const double hidden = AsDouble(model.hidden);
  const double heads = AsDouble(model.heads);
  const double rope = AsDouble(model.qk_rope_head_dim);
  const double latent = AsDouble(model.kv_lora_rank);
  const double tokens = builder.residual_tokens();
  builder.Input("attention norm");
  const double query_width = heads * AsDouble(model.QueryDim());
  size_t queries = builder.size();
  if (model.q_lora_rank > 0) {
    const double rank = AsDouble(model.q_lora_rank);
    builder.Linear("query down", hidden, rank, Split::kReplicated, false);
    queries = builder.size();
    builder.Norm("query norm", rank, tokens, true);
    builder.Linear("query up", rank, query_width, Split::kColumn, false);
  } else {
    builder.Linear("query", hidden, query_width, Split::kColumn, false);
  }
  const size_t queries_end = builder.size();
  builder.Linear("key-value down", hidden, latent + rope, Split::kReplicated,
                 false);
  const size_t keys = builder.size();
  builder.Norm("key-value norm", latent, tokens, true);
  const double expanded = AsDouble(model.qk_nope_head_dim + model.v_head_dim);
  builder.Linear("key-value up", latent, heads * expanded, Split::kColumn,
                 false);
  const double rotated =
      OpsBuilder::kElement * builder.tokens() * (builder.Heads() + 1) * rope;
  builder.Elementwise("rotary embedding", 2 * rotated, 2 * rotated);
  // The rotated part of the key is copied to every head.
  const double key_value_width =
      builder.Heads() * AsDouble(model.QueryDim() + model.ValueDim());
  const size_t keys_end = builder.size();
  ModelOp& core = AddCore(builder, key_value_width, builder.Heads());
  builder.MarkModule(RecomputeModule::kLatentUp, queries, queries_end);
  builder.MarkModule(RecomputeModule::kLatentUp, keys, keys_end);
  if (builder.training().RunsAgain(RecomputeModule::kLatentUp)) {
    // Kept are the compressed ones and the key's part with the position.
    core.RerunOf(Recompute::kSelective).backward +=
        core.attention_inputs - OpsBuilder::kElement * builder.tokens() * rope;
    core.remade_at = static_cast<int>(builder.size()) - 1;
  }
  builder.Linear("attention projection", heads * AsDouble(model.ValueDim()),
                 hidden, Split::kRow, model.bias, !model.lora_qkv_only);
  builder.PostNorm("attention post norm");
  builder.Residual("attention residual");
}

}  // namespace pipewright
