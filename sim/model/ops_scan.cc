// Mixers that pass a state on from chunk to chunk of the sequence: Mamba-2 and
// gated delta. Products inside of chunks are those of matrices, all else waits
// for memory. Kernels, traffic and what is kept are counted in
// state-spaces/mamba 2.2 (ops/triton/ssd_combined.py, with its memory-efficient
// path), in fla-org/flash-linear-attention 0.3 (ops/gated_delta_rule/chunk.py)
// and in Megatron-Core (core/ssm/mamba_mixer.py, gated_delta_net, d98e8a64),
// which has its defaults of chunks too.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/model/ops_builder.h"

namespace pipewright {
namespace {

// Bytes of an activation, bf16. [numerics, bytes]
constexpr double kElement = OpsBuilder::kElement;
// Bytes of a sum. [numerics, bytes]
constexpr double kSum = 4;
// Tokens of a chunk. [framework source]
constexpr int64_t kMambaChunk = 128;
constexpr int64_t kDeltaChunk = 64;
// Kernels of a scan forward. [framework source]
constexpr double kMambaKernels = 5;
constexpr double kDeltaKernels = 6;

// Context parallelism gives each device the whole sequence of a part of the
// heads, and what comes out goes back (core/ssm/mamba_context_parallel.py).
void DealHeads(const OpsBuilder& builder, const std::vector<double>& widths,
               ModelOp& op) {
  if (builder.training().cp == 1) return;
  for (const OpPass pass : {OpPass::kForward, OpPass::kBackwardInput}) {
    for (const double width : widths) {
      op.comms.push_back({.pass = pass,
                          .kind = CommKind::kAllToAll,
                          .group = CommGroup::kContext,
                          .members = builder.training().cp,
                          .bytes = kElement * builder.tokens() * width});
    }
  }
}

OpWork& WorkOf(ModelOp& op, OpPass pass) {
  return op.work[static_cast<int>(pass)];
}

// Keeps its input until B, which makes its activation again; the gradient of
// its weights comes in the same kernel. `exchanged`: the widths of what context
// parallelism deals out in front of it, and copies into order.
void AddConvolution(OpsBuilder& builder, const std::string& prefix,
                    double channels, double weights,
                    const std::vector<double>& exchanged) {
  const double tensor = kElement * builder.tokens() * channels;
  double copied = 0;
  if (builder.training().cp > 1) {
    for (const double width : exchanged) {
      copied += 4 * kElement * builder.tokens() * width;
    }
  }
  ModelOp& op = builder.Elementwise(absl::StrCat(prefix, "convolution"),
                                    2 * tensor + copied, 3 * tensor + copied);
  const double flops =
      2 * AsDouble(builder.model().conv_kernel) * builder.tokens() * channels;
  WorkOf(op, OpPass::kForward).flops = flops;
  WorkOf(op, OpPass::kBackwardInput).flops = 2 * flops;
  op.parameters = channels * weights;
  op.is_frozen = builder.is_frozen();
  op.saved_until_backward = tensor;
  op.forward_workspace = tensor;
  op.backward_workspace = 2 * tensor;
  DealHeads(builder, exchanged, op);
}

// Norm of each head or group, and a gate beside it; `tensors`: that its kernels
// move forward and backward, and keep.
void AddGatedNorm(OpsBuilder& builder, const std::string& prefix, double width,
                  double parameters, double forward, double backward,
                  double kept) {
  const double tensor = kElement * builder.tokens() * width;
  ModelOp& op = builder.Elementwise(absl::StrCat(prefix, "gated norm"),
                                    forward * tensor, backward * tensor);
  op.parameters = parameters;
  op.is_frozen = builder.is_frozen();
  op.saved_until_backward = kept * tensor;
  if (builder.KeepsInputs(false)) {
    op.saved_until_weight = builder.operand_bytes() * builder.tokens() * width;
  }
  op.RerunOf(Recompute::kNormActivation) = {1, 0, op.saved_until_weight};
  op.forward_workspace = tensor;
  op.backward_workspace = 2 * tensor;
  DealHeads(builder, {width}, op);
}

// Work of a scan for one token of a device; what repeats in B is said apart.
struct Scan {
  double forward_flops = 0, again_flops = 0;  // again: in B besides gradients
  double forward_bytes = 0, backward_bytes = 0;
  double kept = 0;                            // bytes of a token until B
  double states = 0;                          // bytes of a token while it runs
  double chunk = 0, outputs = 0, inputs = 0;  // of one product
  double kernels = 0;
  double parameters = 0;
};

void AddScan(OpsBuilder& builder, const std::string& name, const Scan& scan) {
  const double tokens = builder.tokens();
  ModelOp op;
  op.name = name;
  op.kind = OpClass::kScan;
  op.m = scan.chunk;
  op.n = scan.outputs;
  op.k = scan.inputs;
  op.count = scan.kernels;
  WorkOf(op, OpPass::kForward) = {tokens * scan.forward_flops,
                                  tokens * scan.forward_bytes};
  // Two products for each one, and the states again.
  WorkOf(op, OpPass::kBackwardInput) = {
      tokens * (2 * scan.forward_flops + scan.again_flops),
      tokens * scan.backward_bytes};
  op.parameters = scan.parameters;
  op.is_frozen = builder.is_frozen();
  op.saved_until_backward = tokens * scan.kept;
  op.forward_workspace = tokens * scan.states;
  op.backward_workspace = 2 * tokens * scan.states;
  builder.Add(std::move(op));
}

double ChunkOf(const OpsBuilder& builder, int64_t usual) {
  const int64_t chunk = builder.model().scan_chunk;
  const int64_t most = std::max<int64_t>(1, builder.training().sequence);
  return AsDouble(std::min(chunk > 0 ? chunk : usual, most));
}

// A token's sums over what is before it in its chunk are a triangle: half.
Scan MambaScan(const OpsBuilder& builder, double heads, double groups) {
  const ModelSpec& model = builder.model();
  const double width = heads * AsDouble(model.mamba_head_dim);
  const double state = AsDouble(model.mamba_state);
  const double chunk = ChunkOf(builder, kMambaChunk);
  const double shared = groups * state;         // B, and C
  const double passed = width * state / chunk;  // values of states
  const double scores = kSum * chunk * groups;  // C times B, in a sum's type
  const double into_states = 2 * width * state;
  Scan scan;
  scan.forward_flops = chunk * shared + chunk * width + 2 * into_states;
  scan.again_flops = chunk * shared + into_states;
  // Steps; C times B; states of chunks; states passed on; output.
  scan.forward_bytes = 3 * kSum * heads + kElement * (3 * width + 4 * shared) +
                       2 * scores + (2 * kSum + 2 * kElement) * passed;
  // Again: steps, C times B, states. Gradients of states, of what is passed on,
  // of input, B, C, of C times B and its factors, of decays.
  scan.backward_bytes =
      6 * kSum * heads + kElement * (11 * width + 9 * shared) +
      2 * kSum * shared + 6 * scores + (7 * kSum + 3 * kElement) * passed;
  // What comes out, which the norm's gradient needs, and steps.
  scan.kept = kElement * (width + heads);
  scan.states = (kSum + kElement) * passed + scores + kElement * width;
  scan.chunk = chunk;
  scan.outputs = AsDouble(model.mamba_head_dim);
  scan.inputs = state;
  scan.kernels = kMambaKernels;
  scan.parameters = 3 * heads;
  return scan;
}

Scan DeltaScan(const OpsBuilder& builder, double heads) {
  const ModelSpec& model = builder.model();
  const double key = AsDouble(model.delta_key_dim);
  const double value = AsDouble(model.delta_value_dim);
  const double chunk = ChunkOf(builder, kDeltaChunk);
  const double keys = heads * key;  // repeated for each value head
  const double values = heads * value;
  const double square = heads * chunk;
  const double passed = keys * value / chunk;
  Scan scan;
  // Keys times keys, the inverse of that triangle, both of its products; what
  // the state gives and takes; queries times state, keys and values.
  scan.forward_flops =
      chunk * (3 * keys + 2 * values) + square * chunk / 3 + 6 * keys * value;
  scan.again_flops = chunk * (keys + values) + 4 * keys * value;
  scan.forward_bytes =
      kElement * (7 * keys + 6 * values + 2 * square + 2 * passed) +
      2 * kSum * square;
  scan.backward_bytes =
      kElement * (21 * keys + 15 * values + 2 * square + 4 * passed);
  scan.kept = kElement * (2 * keys + values + square + heads) + kSum * heads;
  scan.states = kElement * (passed + keys + 3 * values);
  scan.chunk = chunk;
  scan.outputs = value;
  scan.inputs = key;
  scan.kernels = kDeltaKernels;
  scan.parameters = 2 * heads;
  return scan;
}

}  // namespace

void AddMamba(OpsBuilder& builder) {
  const ModelSpec& model = builder.model();
  const double heads = AsDouble(model.mamba_heads) / builder.tp();
  const double width = heads * AsDouble(model.mamba_head_dim);
  // Each device of a context has a group at least, if need be a copy.
  const double groups = std::max<double>(
      AsDouble(model.mamba_groups) / builder.tp(), builder.training().cp);
  const double shared = groups * AsDouble(model.mamba_state);
  builder.Input("mamba norm");
  builder.Linear(
      "mamba input", AsDouble(model.hidden),
      AsDouble(model.MambaWidth() + model.MambaConvWidth() + model.mamba_heads),
      OpsBuilder::Split::kColumn, model.mamba_bias, false);
  // Weights are those of the groups without copies.
  const double channels = width + 2 * shared;
  const double own = AsDouble(model.MambaConvWidth()) / builder.tp() / channels;
  AddConvolution(
      builder, "mamba ", channels,
      own * AsDouble(model.conv_kernel + (model.mamba_conv_bias ? 1 : 0)),
      {width, width, shared, shared, heads});
  AddScan(builder, "mamba scan", MambaScan(builder, heads, groups));
  // One kernel, which keeps the gate.
  AddGatedNorm(builder, "mamba ", width, width, 3, 5, 1);
  builder.Linear("mamba output", AsDouble(model.MambaWidth()),
                 AsDouble(model.hidden), OpsBuilder::Split::kRow,
                 model.mamba_bias, false);
  builder.PostNorm("mamba post norm");
  builder.Residual("mamba residual");
}

void AddDelta(OpsBuilder& builder) {
  const ModelSpec& model = builder.model();
  const double tp = builder.tp();
  const double heads = AsDouble(model.delta_value_heads) / tp;
  const double keys = AsDouble(model.DeltaKeyWidth()) / tp;
  const double values = AsDouble(model.DeltaValueWidth()) / tp;
  const double repeated = heads * AsDouble(model.delta_key_dim);
  builder.Input("delta norm");
  builder.Linear("delta input", AsDouble(model.hidden),
                 tp * 2 * (keys + values + heads), OpsBuilder::Split::kColumn,
                 false, false);
  AddConvolution(builder, "delta ", 2 * keys + values,
                 AsDouble(model.conv_kernel), {2 * (keys + values + heads)});
  // Norms of queries and keys, which keep their inputs, and both for each value
  // head.
  const double moved =
      kElement * builder.tokens() * (2 * keys + 2 * repeated + 2 * heads);
  ModelOp& made =
      builder.Elementwise("delta query and key norm", moved,
                          moved + kElement * builder.tokens() * 2 * keys);
  made.saved_until_backward = kElement * builder.tokens() * 2 * keys;
  made.forward_workspace = moved;
  made.backward_workspace = moved;
  AddScan(builder, "delta scan", DeltaScan(builder, heads));
  // A norm and a product, which keep both inputs and what is between them.
  AddGatedNorm(builder, "delta ", values, AsDouble(model.delta_value_dim), 5, 8,
               3);
  builder.Linear("delta output", tp * values, AsDouble(model.hidden),
                 OpsBuilder::Split::kRow, false, false);
  builder.PostNorm("delta post norm");
  builder.Residual("delta residual");
}

}  // namespace pipewright
