// The mixture of experts of a layer, behind its second norm and inside its
// residual.
#include "kernels/layer_pass.h"

namespace pipewright {

PwStatus Pass::Activation(int64_t rows, int64_t columns, const void* x,
                          void* y) {
  return kernels_.activation_forward(
      device_, stream_, model_.style == PW_GPT ? PW_GELU : PW_SWIGLU,
      model_.type, rows, columns, x, y);
}

PwStatus Pass::ActivationInput(int64_t rows, int64_t columns, const void* x,
                               const void* dy, void* dx) {
  return kernels_.activation_backward(
      device_, stream_, model_.style == PW_GPT ? PW_GELU : PW_SWIGLU,
      model_.type, rows, columns, x, dy, dx);
}

PwStatus Pass::Grouped(PwGemmPass pass, int64_t inputs, int64_t outputs,
                       const void* a, const void* b, void* c) {
  if (tokens_of_.empty()) {
    tokens_of_.resize(shape_.own_experts);
    const PwRoute route = RouteOf(model_, work_);
    if (model_.balanced) {
      pw_balanced_rows(shape_.expert_rows, route.own, tokens_of_.data());
    } else {
      PW_RETURN_IF_ERROR(kernels_.route_counts(
          device_, stream_, &route,
          reinterpret_cast<const int32_t*>(Inputs(layout_.inputs.counts)),
          tokens_of_.data()));
    }
  }
  const PwGemm gemm = {pass, model_.type, shape_.expert_rows, inputs, outputs};
  return kernels_.grouped_gemm(device_, stream_, &gemm,
                               static_cast<int32_t>(shape_.own_experts),
                               tokens_of_.data(), a, b, c);
}

PwStatus Pass::Experts() {
  const PwRoute route = RouteOf(model_, work_);
  const void* normal = Inputs(layout_.inputs.normal2);
  const void* residual = Saved(layout_.saved.middle);
  void* logits = Workspace(layout_.workspace.logits);
  void* rows = Inputs(layout_.inputs.rows);
  void* wide = Saved(layout_.saved.wide);
  void* active = Inputs(layout_.inputs.active);
  void* out = Saved(layout_.saved.rows);
  auto* weights = reinterpret_cast<float*>(Saved(layout_.saved.weights));
  auto* places = reinterpret_cast<int32_t*>(Saved(layout_.saved.places));
  PW_RETURN_IF_ERROR(Norm(weights_.gamma2, weights_.beta2, residual,
                          Inputs(layout_.inputs.normal2),
                          Saved(layout_.saved.statistics2)));
  PW_RETURN_IF_ERROR(Linear(weights_.router, -1, shape_.hidden, shape_.experts,
                            normal, logits));
  PW_RETURN_IF_ERROR(kernels_.route_forward(
      device_, stream_, &route, logits,
      reinterpret_cast<int32_t*>(Saved(layout_.saved.ids)), weights, places,
      reinterpret_cast<int32_t*>(Inputs(layout_.inputs.counts))));
  PW_RETURN_IF_ERROR(kernels_.dispatch_rows(
      device_, stream_, &route, shape_.hidden, normal, places, rows));
  PW_RETURN_IF_ERROR(Grouped(PW_GEMM_FORWARD, shape_.hidden, shape_.expert_up,
                             rows, Weight(weights_.up), wide));
  PW_RETURN_IF_ERROR(
      Activation(shape_.expert_rows, shape_.expert_ffn, wide, active));
  PW_RETURN_IF_ERROR(Grouped(PW_GEMM_FORWARD, shape_.expert_ffn, shape_.hidden,
                             active, Weight(weights_.down), out));
  if (shape_.shared_ffn > 0) {
    void* shared = Workspace(layout_.workspace.hidden);
    PW_RETURN_IF_ERROR(SharedExperts(shared));
    PW_RETURN_IF_ERROR(AddHidden(residual, shared, shared));
    residual = shared;
  }
  return kernels_.combine_rows(device_, stream_, &route, shape_.hidden, out,
                               places, weights, residual, memory_.output);
}

PwStatus Pass::SharedExperts(void* out) {
  void* wide = Saved(layout_.saved.shared);
  void* active = Inputs(layout_.inputs.shared);
  PW_RETURN_IF_ERROR(Linear(weights_.shared_up, -1, shape_.hidden,
                            shape_.shared_up, Inputs(layout_.inputs.normal2),
                            wide));
  PW_RETURN_IF_ERROR(
      Activation(shape_.tokens, shape_.shared_ffn, wide, active));
  return Linear(weights_.shared_down, -1, shape_.shared_ffn, shape_.hidden,
                active, out);
}

PwStatus Pass::ExpertsBackward(bool input, bool weight) {
  const PwRoute route = RouteOf(model_, work_);
  const void* dy = memory_.output_gradient;
  void* down = Grads(layout_.grads.down);
  void* wide = Grads(layout_.grads.wide);
  void* logits = Grads(layout_.grads.logits);
  void* active = Workspace(layout_.workspace.wide);
  void* rows = Workspace(layout_.workspace.rows);
  void* normal = Workspace(layout_.workspace.hidden);
  auto* dweights =
      reinterpret_cast<float*>(Workspace(layout_.workspace.weights));
  const auto* weights =
      reinterpret_cast<const float*>(Saved(layout_.saved.weights));
  const auto* places =
      reinterpret_cast<const int32_t*>(Saved(layout_.saved.places));
  if (input) {
    PW_RETURN_IF_ERROR(kernels_.combine_rows_backward(
        device_, stream_, &route, shape_.hidden, dy, Saved(layout_.saved.rows),
        places, weights, down, dweights));
    PW_RETURN_IF_ERROR(kernels_.route_backward(
        device_, stream_, &route,
        reinterpret_cast<const int32_t*>(Saved(layout_.saved.ids)), weights,
        dweights, logits));
    PW_RETURN_IF_ERROR(Grouped(PW_GEMM_BACKWARD_INPUT, shape_.expert_ffn,
                               shape_.hidden, down, Weight(weights_.down),
                               active));
  }
  if (weight) {
    PW_RETURN_IF_ERROR(Grouped(PW_GEMM_BACKWARD_WEIGHT, shape_.expert_ffn,
                               shape_.hidden, Inputs(layout_.inputs.active),
                               down, Gradient(weights_.down)));
  }
  if (input) {
    PW_RETURN_IF_ERROR(ActivationInput(shape_.expert_rows, shape_.expert_ffn,
                                       Saved(layout_.saved.wide), active,
                                       wide));
    PW_RETURN_IF_ERROR(Grouped(PW_GEMM_BACKWARD_INPUT, shape_.hidden,
                               shape_.expert_up, wide, Weight(weights_.up),
                               rows));
  }
  if (weight) {
    PW_RETURN_IF_ERROR(Grouped(PW_GEMM_BACKWARD_WEIGHT, shape_.hidden,
                               shape_.expert_up, Inputs(layout_.inputs.rows),
                               wide, Gradient(weights_.up)));
  }
  if (input) {
    PW_RETURN_IF_ERROR(LinearInput(weights_.router, shape_.hidden,
                                   shape_.experts, logits, normal));
    PW_RETURN_IF_ERROR(kernels_.combine_rows(device_, stream_, &route,
                                             shape_.hidden, rows, places,
                                             nullptr, normal, normal));
  }
  if (weight) {
    PW_RETURN_IF_ERROR(LinearWeight(weights_.router, -1, shape_.hidden,
                                    shape_.experts,
                                    Inputs(layout_.inputs.normal2), logits));
  }
  if (shape_.shared_ffn > 0) {
    PW_RETURN_IF_ERROR(SharedExpertsBackward(input, weight));
  }
  if (!input) return PW_OK;
  return NormBackward(
      weights_.gamma2, weights_.beta2, normal, Saved(layout_.saved.middle),
      Saved(layout_.saved.statistics2), dy, Grads(layout_.grads.out));
}

// Adds to the gradient of the norm's output.
PwStatus Pass::SharedExpertsBackward(bool input, bool weight) {
  void* down = Grads(layout_.grads.shared_down);
  void* wide = Grads(layout_.grads.shared);
  void* active = Workspace(layout_.workspace.wide);
  void* own = Workspace(layout_.workspace.rows);
  void* normal = Workspace(layout_.workspace.hidden);
  if (input) {
    PW_RETURN_IF_ERROR(CopyHidden(memory_.output_gradient, down));
    PW_RETURN_IF_ERROR(LinearInput(weights_.shared_down, shape_.shared_ffn,
                                   shape_.hidden, down, active));
  }
  if (weight) {
    PW_RETURN_IF_ERROR(LinearWeight(weights_.shared_down, -1, shape_.shared_ffn,
                                    shape_.hidden,
                                    Inputs(layout_.inputs.shared), down));
  }
  if (input) {
    PW_RETURN_IF_ERROR(ActivationInput(shape_.tokens, shape_.shared_ffn,
                                       Saved(layout_.saved.shared), active,
                                       wide));
    PW_RETURN_IF_ERROR(LinearInput(weights_.shared_up, shape_.hidden,
                                   shape_.shared_up, wide, own));
    PW_RETURN_IF_ERROR(AddHidden(normal, own, normal));
  }
  if (!weight) return PW_OK;
  return LinearWeight(weights_.shared_up, -1, shape_.hidden, shape_.shared_up,
                      Inputs(layout_.inputs.normal2), wide);
}

}  // namespace pipewright
