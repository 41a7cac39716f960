// The embedding and the head.
#include "kernels/layer_pass.h"

namespace pipewright {

PwStatus Pass::EmbeddingForward() {
  const bool split = shape_.rows != shape_.tokens;
  void* to = split ? Workspace(layout_.workspace.hidden) : memory_.output;
  PW_RETURN_IF_ERROR(kernels_.embedding_forward(
      device_, stream_, model_.type, shape_.tokens, shape_.hidden,
      work_.slice_tokens, work_.slice_first, memory_.ids,
      Weight(weights_.table), Weight(weights_.positions), to));
  return split ? CopyHidden(to, memory_.output) : PW_OK;
}

PwStatus Pass::EmbeddingBackward(bool input, bool weight) {
  if (input) {
    PW_RETURN_IF_ERROR(
        CopyHidden(memory_.output_gradient, Grads(layout_.grads.out)));
  }
  if (!weight) return PW_OK;
  return kernels_.embedding_backward(
      device_, stream_, model_.type, shape_.tokens, shape_.hidden,
      work_.slice_tokens, work_.slice_first, memory_.ids,
      Grads(layout_.grads.out), Gradient(weights_.table),
      Gradient(weights_.positions));
}

PwStatus Pass::HeadForward() {
  PW_RETURN_IF_ERROR(CopyHidden(memory_.input, Saved(layout_.saved.input)));
  PW_RETURN_IF_ERROR(Norm(weights_.gamma1, weights_.beta1, memory_.input,
                          Inputs(layout_.inputs.normal1),
                          Saved(layout_.saved.statistics1)));
  PW_RETURN_IF_ERROR(Linear(weights_.output, -1, shape_.hidden,
                            shape_.vocabulary, Inputs(layout_.inputs.normal1),
                            Grads(layout_.grads.wide)));
  return kernels_.cross_entropy_forward(
      device_, stream_, model_.type, shape_.tokens, shape_.vocabulary,
      Grads(layout_.grads.wide), memory_.ids, memory_.losses,
      reinterpret_cast<float*>(Saved(layout_.saved.lse)));
}

PwStatus Pass::HeadBackward(bool input, bool weight) {
  void* logits = Grads(layout_.grads.wide);
  void* normal = Workspace(layout_.workspace.hidden);
  if (input) {
    PW_RETURN_IF_ERROR(kernels_.cross_entropy_backward(
        device_, stream_, model_.type, shape_.tokens, shape_.vocabulary, logits,
        memory_.ids, reinterpret_cast<const float*>(Saved(layout_.saved.lse)),
        memory_.loss_scale));
    PW_RETURN_IF_ERROR(LinearInput(weights_.output, shape_.hidden,
                                   shape_.vocabulary, logits, normal));
  }
  if (weight) {
    PW_RETURN_IF_ERROR(LinearWeight(weights_.output, -1, shape_.hidden,
                                    shape_.vocabulary,
                                    Inputs(layout_.inputs.normal1), logits));
  }
  if (!input) return PW_OK;
  return NormBackward(
      weights_.gamma1, weights_.beta1, normal, Saved(layout_.saved.input),
      Saved(layout_.saved.statistics1), nullptr, memory_.input_gradient);
}

}  // namespace pipewright
