// The layer: attention and feed-forward block, each behind a norm and inside a
// residual (pre-norm, as GPT-2 and Llama have it).
#include "kernels/layer_pass.h"

namespace pipewright {

PwStatus Pass::LayerForward() {
  PW_RETURN_IF_ERROR(Attention());
  return part_ == PW_EXPERT_LAYER ? Experts() : FeedForward();
}

PwStatus Pass::LayerBackward(bool input, bool weight) {
  PW_RETURN_IF_ERROR(part_ == PW_EXPERT_LAYER
                         ? ExpertsBackward(input, weight)
                         : FeedForwardBackward(input, weight));
  return AttentionBackward(input, weight);
}

PwStatus Pass::Attention() {
  void* out = Workspace(layout_.workspace.hidden);
  PW_RETURN_IF_ERROR(CopyHidden(memory_.input, Saved(layout_.saved.input)));
  PW_RETURN_IF_ERROR(Norm(weights_.gamma1, weights_.beta1, memory_.input,
                          Normal1(), Saved(layout_.saved.statistics1)));
  PW_RETURN_IF_ERROR(Linear(weights_.qkv, weights_.qkv_bias, shape_.hidden,
                            shape_.qkv, Normal1(), Saved(layout_.saved.qkv)));
  PW_RETURN_IF_ERROR(Rotate(Saved(layout_.saved.qkv), 0));
  PW_RETURN_IF_ERROR(AttentionCore());
  PW_RETURN_IF_ERROR(Linear(weights_.out, weights_.out_bias, shape_.attention,
                            shape_.hidden, AttentionOutput(), out));
  return AddHidden(Saved(layout_.saved.input), out,
                   Saved(layout_.saved.middle));
}

PwStatus Pass::FeedForward() {
  void* out = Workspace(layout_.workspace.hidden);
  const void* middle = Saved(layout_.saved.middle);
  PW_RETURN_IF_ERROR(Norm(weights_.gamma2, weights_.beta2, middle, Normal2(),
                          Saved(layout_.saved.statistics2)));
  PW_RETURN_IF_ERROR(Linear(weights_.up, weights_.up_bias, shape_.hidden,
                            shape_.up, Normal2(), Saved(layout_.saved.wide)));
  PW_RETURN_IF_ERROR(kernels_.activation_forward(
      device_, stream_, model_.style == PW_GPT ? PW_GELU : PW_SWIGLU,
      model_.type, shape_.tokens, shape_.ffn, Saved(layout_.saved.wide),
      Active()));
  PW_RETURN_IF_ERROR(Linear(weights_.down, weights_.down_bias, shape_.ffn,
                            shape_.hidden, Active(), out));
  return AddHidden(middle, out, memory_.output);
}

PwStatus Pass::FeedForwardBackward(bool input, bool weight) {
  // With fp8 what W needs of it is made below, so there is no copy.
  const void* down =
      model_.fp8_linear ? memory_.output_gradient : Grads(layout_.grads.down);
  void* wide = WideGradient();
  void* active = Workspace(layout_.workspace.wide);
  void* normal = Workspace(layout_.workspace.hidden);
  if (input) {
    if (!model_.fp8_linear) {
      PW_RETURN_IF_ERROR(
          CopyHidden(memory_.output_gradient, Grads(layout_.grads.down)));
    }
    PW_RETURN_IF_ERROR(
        LinearInput(weights_.down, shape_.ffn, shape_.hidden, down, active));
  }
  if (weight) {
    PW_RETURN_IF_ERROR(LinearWeight(weights_.down, weights_.down_bias,
                                    shape_.ffn, shape_.hidden,
                                    Inputs(layout_.inputs.active), down));
  }
  if (input) {
    PW_RETURN_IF_ERROR(kernels_.activation_backward(
        device_, stream_, model_.style == PW_GPT ? PW_GELU : PW_SWIGLU,
        model_.type, shape_.tokens, shape_.ffn, Saved(layout_.saved.wide),
        active, wide));
    PW_RETURN_IF_ERROR(
        LinearInput(weights_.up, shape_.hidden, shape_.up, wide, normal));
  }
  if (weight) {
    PW_RETURN_IF_ERROR(LinearWeight(weights_.up, weights_.up_bias,
                                    shape_.hidden, shape_.up,
                                    Inputs(layout_.inputs.normal2), wide));
  }
  if (!input) return PW_OK;
  // The gradient in the middle of the layer is also that of the output of
  // attention's last linear layer, whose W wants it.
  return NormBackward(weights_.gamma2, weights_.beta2, normal,
                      Saved(layout_.saved.middle),
                      Saved(layout_.saved.statistics2), down, MiddleGradient());
}

PwStatus Pass::AttentionInputGradient() {
  void* normal = Workspace(layout_.workspace.hidden);
  PW_RETURN_IF_ERROR(AttentionCoreBackward());
  PW_RETURN_IF_ERROR(Rotate(QkvGradient(), 1));
  return LinearInput(weights_.qkv, shape_.hidden, shape_.qkv, QkvGradient(),
                     normal);
}

PwStatus Pass::AttentionBackward(bool input, bool weight) {
  void* out = MiddleGradient();
  if (input) {
    PW_RETURN_IF_ERROR(LinearInput(weights_.out, shape_.attention,
                                   shape_.hidden, out,
                                   Workspace(layout_.workspace.wide)));
  }
  if (weight) {
    PW_RETURN_IF_ERROR(LinearWeight(weights_.out, weights_.out_bias,
                                    shape_.attention, shape_.hidden,
                                    Inputs(layout_.inputs.attention), out));
  }
  if (input) PW_RETURN_IF_ERROR(AttentionInputGradient());
  if (weight) {
    PW_RETURN_IF_ERROR(
        LinearWeight(weights_.qkv, weights_.qkv_bias, shape_.hidden, shape_.qkv,
                     Inputs(layout_.inputs.normal1), Grads(layout_.grads.qkv)));
  }
  if (!input) return PW_OK;
  return NormBackward(
      weights_.gamma1, weights_.beta1, Workspace(layout_.workspace.hidden),
      Saved(layout_.saved.input), Saved(layout_.saved.statistics1), out,
      memory_.input_gradient);
}

}  // namespace pipewright
