// Feed-forward part: dense, and a mixture of experts.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/model/ops_builder.h"

namespace pipewright {
namespace {

// Keeps its input until B and its output for the W of what follows, if that
// has one.
ModelOp& AddActivation(OpsBuilder& builder, const std::string& name,
                       double tokens, double width, bool adapted) {
  const double output = OpsBuilder::kElement * tokens * width;
  const double input = output * (builder.model().gated ? 2 : 1);
  ModelOp& op = builder.Elementwise(name, input + output, 2 * input + output);
  op.saved_until_backward = input;
  if (builder.KeepsInputs(adapted)) {
    op.saved_until_weight = builder.operand_bytes() * tokens * width;
  }
  op.RerunOf(Recompute::kNormActivation) = {1, 0, op.saved_until_weight};
  op.backward_workspace = input + output;
  return op;
}

// `width`: that inside an expert.
ModelOp Grouped(const OpsBuilder& builder, const std::string& name, double rows,
                double outputs, double inputs, double experts, double width) {
  ModelOp op;
  op.name = name;
  op.kind = OpClass::kGroupedGemm;
  op.m = rows / experts;
  op.n = outputs;
  op.k = inputs;
  op.count = experts;
  op.parameters = experts * outputs * inputs +
                  (builder.model().expert_bias ? experts * outputs : 0);
  op.is_expert = true;
  if (builder.model().gated) op.inner = width;
  op.part = OpPart::kExperts;
  op.is_frozen = builder.is_frozen();
  builder.FillGemm(op);
  const double element = OpsBuilder::kElement;
  op.held_for_weight = op.has_weight_pass ? element * rows * outputs : 0;
  op.forward_workspace = element * rows * outputs;
  op.backward_workspace = element * rows * (outputs + inputs);
  return op;
}

// Rows that a device sends to the experts of others, or gets back, as the
// busiest of them has them. Tensor parallelism of experts gathers the rows of
// its devices before them and sums their results behind them.
void AddExchange(const OpsBuilder& builder, double bytes, bool is_dispatch,
                 ModelOp& op) {
  const TrainingSpec& training = builder.training();
  const Execution& execution = training.execution;
  const double busiest = bytes * ExpertLoad(builder.model(), training);
  const bool once = execution.dispatch == ExpertDispatch::kOnce;
  for (const OpPass pass : {OpPass::kForward, OpPass::kBackwardInput}) {
    if (training.ep > 1) {
      op.comms.push_back(
          {.pass = pass,
           .kind = CommKind::kAllToAll,
           .group = CommGroup::kExpert,
           .members = training.ep,
           .bytes = busiest,
           .beside_passes = execution.overlap_experts,
           .copies = once ? AsDouble(builder.model().experts_per_token) : 0,
           .most_nodes = execution.expert_nodes});
    }
    // Weights of the rows in fp32 go the same way in a message of their own
    // (Megatron-Core 0.14, token_dispatcher.py, token_dispatch).
    if (training.ep > 1 && is_dispatch && !once) {
      op.comms.push_back({.pass = pass,
                          .kind = CommKind::kAllToAll,
                          .group = CommGroup::kExpert,
                          .members = training.ep,
                          .bytes = 4 * busiest / OpsBuilder::kElement /
                                   AsDouble(builder.model().ExpertInput()),
                          .beside_passes = execution.overlap_experts});
    }
    if (training.etp() == 1 || !training.sequence_parallel) continue;
    const bool gathers = is_dispatch == (pass == OpPass::kForward);
    op.comms.push_back(
        {.pass = pass,
         .kind = gathers ? CommKind::kAllGather : CommKind::kReduceScatter,
         .group = CommGroup::kTensor,
         .members = training.etp(),
         .bytes = busiest * training.etp(),
         .beside_passes = execution.overlap_experts});
  }
}

// Every device projects its tokens by itself (Megatron-Core, moe_layer.py,
// fc1_latent_proj). What goes in is kept with the norm; what comes out of the
// experts, here.
void AddLatent(OpsBuilder& builder, bool is_down) {
  const ModelSpec& model = builder.model();
  const double hidden = AsDouble(model.hidden);
  const double latent = AsDouble(model.expert_latent);
  ModelOp& op = builder.Linear(
      is_down ? "expert latent down" : "expert latent up",
      is_down ? hidden : latent, is_down ? latent : hidden,
      OpsBuilder::Split::kReplicated, model.bias, false);
  if (is_down || !builder.KeepsInputs(false)) return;
  op.saved_until_weight +=
      builder.operand_bytes() * builder.residual_tokens() * latent;
}

// A product of each token with one vector weighs what the shared experts give,
// which its gradient needs.
void AddSharedGate(OpsBuilder& builder) {
  const double hidden = AsDouble(builder.model().hidden);
  const double tensor =
      OpsBuilder::kElement * builder.residual_tokens() * hidden;
  ModelOp& op = builder.Elementwise("shared gate", 3 * tensor, 6 * tensor);
  op.parameters = hidden;
  op.is_frozen = builder.is_frozen();
  op.saved_until_backward = tensor;
}

}  // namespace

double ExpertLoad(const ModelSpec& model, const TrainingSpec& training) {
  const Execution& execution = training.execution;
  if (execution.expert_load > 0) return execution.expert_load;
  if (execution.routing == Routing::kBalanced || training.ep == 1) return 1;
  const double of_device = AsDouble(model.experts) / training.ep;
  return std::min<double>(training.ep,
                          1 + kBusiestExpert / std::sqrt(of_device));
}

void AddFeedForward(OpsBuilder& builder, double ffn_hidden,
                    const std::string& prefix) {
  const ModelSpec& model = builder.model();
  const double hidden = AsDouble(model.hidden);
  ModelOp& inputs = builder.Linear(
      absl::StrCat(prefix, model.gated ? "gate-up" : "up"), hidden,
      ffn_hidden * (model.gated ? 2 : 1), OpsBuilder::Split::kColumn,
      model.bias, !model.lora_qkv_only);
  if (model.gated) inputs.products = {inputs.n / 2, inputs.n / 2};
  AddActivation(builder, absl::StrCat(prefix, "activation"), builder.tokens(),
                ffn_hidden / builder.tp(), !model.lora_qkv_only);
  builder.Linear(absl::StrCat(prefix, "down"), ffn_hidden, hidden,
                 OpsBuilder::Split::kRow, model.bias, !model.lora_qkv_only);
}

// The busiest device counts; its rows are spread evenly over its experts.
// Experts are split over tensor parallelism like dense layers unless
// Execution::etp says otherwise (Megatron-LM's default).
void AddExperts(OpsBuilder& builder) {
  const ModelSpec& model = builder.model();
  const TrainingSpec& training = builder.training();
  const double hidden = AsDouble(model.ExpertInput());
  const double element = OpsBuilder::kElement;
  const double own_rows =
      builder.residual_tokens() * AsDouble(model.experts_per_token);
  const double etp = training.etp();
  const double rows = builder.tokens() * AsDouble(model.experts_per_token) *
                      ExpertLoad(model, training) * etp / builder.tp();
  const double experts = AsDouble(model.experts) / training.ep;
  const double width = AsDouble(model.expert_ffn_hidden) / etp;

  ModelOp router;
  router.name = "router";
  router.kind = OpClass::kGemm;
  router.m = builder.residual_tokens();
  router.n = AsDouble(model.experts);
  router.k = AsDouble(model.hidden);
  router.parameters = router.n * router.k + (model.router_bias ? router.n : 0);
  router.is_frozen = builder.is_frozen();
  router.part = OpPart::kRouter;
  builder.FillGemm(router);
  // Probabilities in fp32.
  router.saved_until_backward = 4 * router.m * router.n;
  builder.Add(router);
  if (model.expert_latent > 0) AddLatent(builder, true);

  // Copies for each expert come by devices, and are sorted by experts once more
  // (Megatron-Core 0.14, sort_chunks_by_idxs).
  const bool sorts = training.ep > 1 && experts > 1 &&
                     training.execution.dispatch == ExpertDispatch::kAllToAll;
  const double moved = 2 * element * rows * hidden;
  const double sorted = sorts ? moved : 0;
  const double summed =
      training.execution.fused_permutation ? moved : kScatteredSum * moved;
  ModelOp dispatch;
  dispatch.name = "dispatch";
  dispatch.kind = OpClass::kRouting;
  dispatch.work[static_cast<int>(OpPass::kForward)] = {.bytes = moved + sorted};
  dispatch.work[static_cast<int>(OpPass::kBackwardInput)] = {.bytes = summed +
                                                                      sorted};
  dispatch.chunks = sorts ? AsDouble(model.experts) : 0;
  if (builder.KeepsInputs(false)) {
    dispatch.saved_until_weight = builder.operand_bytes() * rows * hidden;
  }
  dispatch.forward_workspace = element * rows * hidden;
  dispatch.backward_workspace = 2 * element * rows * hidden;
  AddExchange(builder, element * own_rows * hidden, true, dispatch);
  dispatch.part = OpPart::kExperts;
  builder.Add(dispatch);

  ModelOp gate_up =
      Grouped(builder, "experts gate-up", rows, width * (model.gated ? 2 : 1),
              hidden, experts, width);
  gate_up.is_gate_up = true;
  gate_up.split = TensorSplit::kOutputs;
  builder.Add(std::move(gate_up));
  const size_t inside = builder.size();
  ModelOp& activation =
      AddActivation(builder, "experts activation", rows, width, false);
  activation.part = OpPart::kExperts;
  if (model.gated) activation.inner = width;
  builder
      .Add(
          Grouped(builder, "experts down", rows, hidden, width, experts, width))
      .split = TensorSplit::kInputs;
  builder.MarkModule(RecomputeModule::kExpertActivation, inside, inside + 1);

  ModelOp combine;
  combine.name = "combine";
  combine.kind = OpClass::kRouting;
  combine.work[static_cast<int>(OpPass::kForward)] = {.bytes = summed + sorted};
  combine.work[static_cast<int>(OpPass::kBackwardInput)] = {
      .bytes = 1.5 * moved + sorted};
  combine.chunks = dispatch.chunks;
  // Rows by token and by expert, and the exchanged ones. What is summed is
  // not kept: the activation has applied the router's weights (Megatron-Core
  // from 0.12 on).
  const double copies = training.ep > 1 ? 3 : 2;
  combine.forward_workspace = copies * element * rows * hidden;
  combine.backward_workspace = copies * element * rows * hidden;
  AddExchange(builder, element * own_rows * hidden, false, combine);
  combine.part = OpPart::kExperts;
  builder.Add(combine);
  if (model.expert_latent > 0) AddLatent(builder, false);

  if (model.shared_ffn_hidden > 0) {
    const size_t shared = builder.size();
    AddFeedForward(builder, AsDouble(model.shared_ffn_hidden), "shared ");
    if (model.shared_gate) AddSharedGate(builder);
    builder.MarkModule(RecomputeModule::kSharedExperts, shared);
  }
}

}  // namespace pipewright
