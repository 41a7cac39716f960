#include "sim/model/ops_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

void AddComm(const TrainingSpec& training, OpPass pass, CommKind kind,
             double bytes, ModelOp& op) {
  const bool overlaps =
      training.execution.overlap_tensor && training.sequence_parallel;
  op.comms.push_back({.pass = pass,
                      .kind = kind,
                      .group = CommGroup::kTensor,
                      .members = training.tp,
                      .bytes = bytes,
                      .overlaps = overlaps,
                      .pieces = overlaps ? training.tp : 0});
}

}  // namespace

OpsBuilder::OpsBuilder(const ModelSpec& model, const TrainingSpec& training,
                       bool is_frozen)
    : model_(model),
      training_(training),
      is_frozen_(is_frozen || model.lora_rank > 0),
      tokens_(training.tokens()),
      residual_tokens_(training.sequence_parallel ? tokens_ / training.tp
                                                  : tokens_) {}

double OpsBuilder::Heads() const { return AsDouble(model_.heads) / tp(); }

double OpsBuilder::KvHeads() const {
  // With fewer of them than devices each device has a copy of one.
  return std::max(1.0, AsDouble(model_.kv_heads) / tp());
}

ModelOp& OpsBuilder::Norm(const std::string& name, double width, double tokens,
                          bool feeds_linear) {
  ModelOp op;
  op.name = name;
  op.kind = OpClass::kNorm;
  const double tensor = kElement * tokens * width;
  // Reads the input, writes the output; backward: input and gradient in, out
  // goes the gradient that the residual's is added to.
  op.work[static_cast<int>(OpPass::kForward)] = {.bytes = 2 * tensor};
  op.work[static_cast<int>(OpPass::kBackwardInput)] = {.bytes = 4 * tensor};
  op.parameters = width * (model_.layer_norm ? 2 : 1);
  op.is_frozen = is_frozen_;
  op.saved_until_backward = tensor;
  if (feeds_linear) {
    op.saved_until_weight = operand_bytes() * tokens * width;
  }
  op.forward_workspace = feeds_linear ? 0 : tensor;
  op.backward_workspace = 2 * tensor;
  op.RerunOf(Recompute::kNormActivation) = {1, 0, op.saved_until_weight};
  return Add(std::move(op));
}

void OpsBuilder::Input(const char* name) {
  const double width = AsDouble(model_.hidden);
  const bool kept = KeepsInputs(!model_.lora_qkv_only ||
                                absl::string_view(name) != kFeedForwardNorm);
  if (model_.pre_norms) {
    Norm(name, width, residual_tokens_, kept);
    return;
  }
  Elementwise(name, 0, 0).saved_until_weight =
      kept ? operand_bytes() * residual_tokens_ * width : 0;
}

void OpsBuilder::PostNorm(const std::string& name) {
  if (!model_.post_norms) return;
  Norm(name, AsDouble(model_.hidden), residual_tokens_, false);
}

void OpsBuilder::FillGemm(ModelOp& op) const {
  op.is_wide = is_head_ || op.part == OpPart::kRouter;
  const double operand = op.is_wide ? kElement : operand_bytes();
  const double flops = 2 * op.m * op.n * op.k * op.count;
  const double inputs = operand * op.m * op.k * op.count;
  const double outputs = kElement * op.m * op.n * op.count;
  const double weights = operand * op.n * op.k * op.count;
  const double gradients =
      2 * training_.gradient_bytes * op.n * op.k * op.count;
  op.work[static_cast<int>(OpPass::kForward)] = {flops,
                                                 inputs + weights + outputs};
  op.work[static_cast<int>(OpPass::kBackwardInput)] = {
      flops, inputs + weights + outputs};
  op.has_weight_pass = !op.is_frozen;
  if (op.has_weight_pass) {
    op.work[static_cast<int>(OpPass::kBackwardWeight)] = {
        flops, inputs + outputs + gradients};
  }
}

void OpsBuilder::AddTensorComms(Split split, ModelOp& op) const {
  if (training_.tp == 1 || split == Split::kReplicated) return;
  const bool column = split == Split::kColumn;
  // The side that is whole: input of a column, output of a row.
  const double elements = op.m * (column ? op.k : op.n);
  const double whole = kElement * elements;
  if (!training_.sequence_parallel) {
    AddComm(training_, column ? OpPass::kBackwardInput : OpPass::kForward,
            CommKind::kAllReduce, whole, op);
    BraidTensorComms(op);
    return;
  }
  // What a module gathers it has cast before (GatheredBytes); sums are of 16
  // bit.
  const double gathered = GatheredBytes(precision(), false) * elements;
  if (!column) {
    AddComm(training_, OpPass::kForward, CommKind::kReduceScatter, whole, op);
    AddComm(training_, OpPass::kBackwardInput, CommKind::kAllGather,
            GatheredBytes(precision(), op.has_weight_pass) * elements, op);
    BraidTensorComms(op);
    return;
  }
  AddComm(training_, OpPass::kForward, CommKind::kAllGather, gathered, op);
  AddComm(training_, OpPass::kBackwardInput, CommKind::kReduceScatter, whole,
          op);
  BraidTensorComms(op);
  // The input was kept in parts and is gathered once more (arXiv 2205.05198,
  // section 4.2.2).
  if (op.has_weight_pass && !training_.keeps_gathered) {
    AddComm(training_, OpPass::kBackwardWeight, CommKind::kAllGather, gathered,
            op);
    op.comms.back().overlaps = true;
    op.comms.back().pieces = 0;
  }
}

// Braids exchanges of F and B of layers; what W gathers runs beside its own
// product.
void OpsBuilder::BraidTensorComms(ModelOp& op) const {
  if (!training_.execution.braided_tensor || is_head_) return;
  for (OpComm& comm : op.comms) comm.beside_passes = true;
}

ModelOp& OpsBuilder::Linear(const std::string& name, double inputs,
                            double outputs, Split split, bool bias,
                            bool adapted) {
  ModelOp op;
  op.name = name;
  op.kind = OpClass::kGemm;
  op.m = split == Split::kReplicated ? residual_tokens_ : tokens_;
  op.n = split == Split::kColumn ? outputs / tp() : outputs;
  op.k = split == Split::kRow ? inputs / tp() : inputs;
  op.split = split == Split::kColumn ? TensorSplit::kOutputs
             : split == Split::kRow  ? TensorSplit::kInputs
                                     : TensorSplit::kNone;
  op.parameters = op.n * op.k + (bias ? op.n : 0);
  op.is_frozen = is_frozen_;
  FillGemm(op);
  AddTensorComms(split, op);
  const bool gathers = training_.sequence_parallel && training_.tp > 1 &&
                       split == Split::kColumn;
  const double whole_input = kElement * op.m * op.k;
  op.held_for_weight =
      op.has_weight_pass
          ? kElement * (split == Split::kRow ? residual_tokens_ : op.m) * op.n
          : 0;
  const double whole_output = kElement * op.m * op.n;
  op.forward_workspace = whole_output + (gathers ? whole_input : 0);
  if (split == Split::kRow) {
    // The gradient of the output is the residual stream's, gathered where
    // that is in parts.
    const bool in_parts = training_.sequence_parallel && training_.tp > 1;
    op.shared_workspace = in_parts ? whole_output : 0;
    op.backward_workspace = op.shared_workspace + whole_input;
    op.weight_workspace = op.shared_workspace;
  } else {
    // Gradients of output and input, the latter whole and then in parts; W
    // gathers the input again.
    op.backward_workspace =
        whole_output + whole_input + (gathers ? whole_input / tp() : 0);
    const bool keeps =
        gathers && op.has_weight_pass && training_.keeps_gathered;
    op.weight_workspace = gathers && !keeps ? whole_input : 0;
    if (keeps) {
      // All but the part that the op in front keeps.
      const double operand = is_head_ ? kElement : operand_bytes();
      op.saved_until_weight = operand * op.m * op.k * (1 - 1 / tp());
      op.RerunOf(Recompute::kNormActivation).weight = op.saved_until_weight;
    }
  }
  ModelOp& added = Add(std::move(op));
  if (model_.lora_rank == 0 || !adapted) return added;
  const size_t index = ops_.size() - 1;
  AddLora(ops_[index]);
  return ops_[index];
}

void OpsBuilder::AddLora(const ModelOp& linear) {
  const double rank = AsDouble(model_.lora_rank);
  ModelOp op;
  op.name = absl::StrCat(linear.name, " lora");
  op.kind = OpClass::kGemm;
  op.m = linear.m;
  op.n = linear.n + linear.k;  // both thin products in one
  op.k = rank;
  op.parameters = rank * (linear.n + linear.k);
  FillGemm(op);
  op.saved_until_weight = kElement * op.m * rank;
  op.held_for_weight = kElement * op.m * rank;
  Add(std::move(op));
}

ModelOp& OpsBuilder::Residual(const std::string& name) {
  const double elements = residual_tokens_ * AsDouble(model_.hidden);
  ModelOp op;
  op.name = name;
  op.kind = OpClass::kElementwise;
  const double mask = model_.dropout ? elements : 0;
  op.work[static_cast<int>(OpPass::kForward)] = {
      .bytes = 3 * kElement * elements + mask};
  // The gradient passes unchanged but for the mask.
  op.work[static_cast<int>(OpPass::kBackwardInput)] = {
      .bytes = model_.dropout ? 2 * kElement * elements + mask : 0};
  op.saved_until_backward = mask;
  op.RerunOf(Recompute::kNormActivation) = {1, mask, 0};
  op.forward_workspace = kElement * elements;
  op.backward_workspace = model_.dropout ? kElement * elements : 0;
  return Add(std::move(op));
}

ModelOp& OpsBuilder::Elementwise(const std::string& name, double forward_bytes,
                                 double backward_bytes) {
  ModelOp op;
  op.name = name;
  op.kind = OpClass::kElementwise;
  op.work[static_cast<int>(OpPass::kForward)] = {.bytes = forward_bytes};
  op.work[static_cast<int>(OpPass::kBackwardInput)] = {.bytes = backward_bytes};
  return Add(std::move(op));
}

void OpsBuilder::MarkAll(OpPart part) {
  for (ModelOp& op : ops_) op.part = part;
}

void OpsBuilder::MarkModule(RecomputeModule module, size_t first, size_t end) {
  if (!training_.RunsAgain(module)) return;
  for (size_t index = first; index < (end > 0 ? end : size()); ++index) {
    ModelOp& op = ops_[index];
    Rerun& rerun = op.RerunOf(Recompute::kSelective);
    rerun.part = 1;
    op.remade_at = static_cast<int>(size()) - 1;
    if (op.kind == OpClass::kAttention) {
      rerun.backward = op.saved_until_backward - op.attention_inputs;
      continue;
    }
    const bool keeps_input =
        op.kind == OpClass::kNorm ||
        (index == first && op.kind == OpClass::kElementwise &&
         op.saved_until_weight > 0);
    rerun.backward = keeps_input ? 0 : op.saved_until_backward;
    rerun.weight = op.saved_until_weight;
  }
}

ModelOp& OpsBuilder::Add(ModelOp op) {
  ops_.push_back(std::move(op));
  return ops_.back();
}

}  // namespace pipewright
