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

// The core of attention inside a layer: rotary positions, the cache of slices.
// Queries, keys and values lie side by side in the rows of one matrix; in the
// cache there are keys and values only.
PwStatus Pass::Rotate(void* qkv, int32_t inverse) {
  if (model_.style != PW_LLAMA) return PW_OK;
  return kernels_.rotary(device_, stream_, model_.type, work_.batch,
                         work_.slice_tokens, shape_.heads + shape_.kv_heads,
                         shape_.head_dim, shape_.qkv, work_.slice_first,
                         model_.rotary_base, inverse, qkv);
}

PwStatus Pass::AttentionCore() {
  const PwAttention attention = AttentionOf(model_, work_);
  char* qkv = Saved(layout_.saved.qkv);
  char* out = AttentionOutput();
  float* lse = reinterpret_cast<float*>(Saved(layout_.saved.lse));
  void* scratch = Workspace(layout_.workspace.scratch);
  const int64_t values = shape_.kv / 2 * size_;
  if (!shape_.sliced) {
    const char* keys = qkv + shape_.attention * size_;
    return kernels_.attention_forward(device_, stream_, &attention, qkv, keys,
                                      keys + values, out, lse, scratch);
  }
  for (int64_t sequence = 0; sequence < work_.batch; ++sequence) {
    const int64_t token = sequence * work_.slice_tokens;
    const char* here = qkv + token * shape_.qkv * size_;
    char* keys = Cache(layout_.cache.keys) +
                 sequence * work_.sequence * shape_.kv * size_;
    PW_RETURN_IF_ERROR(kernels_.copy_rows(
        device_, stream_, model_.type, work_.slice_tokens, shape_.kv,
        here + shape_.attention * size_, shape_.qkv,
        keys + work_.slice_first * shape_.kv * size_, shape_.kv));
    PW_RETURN_IF_ERROR(kernels_.attention_forward(
        device_, stream_, &attention, here, keys, keys + values,
        out + token * shape_.attention * size_, lse + token * shape_.heads,
        scratch));
  }
  return PW_OK;
}

PwStatus Pass::AttentionCoreBackward() {
  if (shape_.sliced) {
    for (int64_t sequence = 0; sequence < work_.batch; ++sequence) {
      PW_RETURN_IF_ERROR(AttentionSliceBackward(sequence));
    }
    return PW_OK;
  }
  const PwAttention attention = AttentionOf(model_, work_);
  const int64_t values = shape_.kv / 2 * size_;
  const char* qkv = Saved(layout_.saved.qkv);
  const char* keys = qkv + shape_.attention * size_;
  char* d_qkv = QkvGradient();
  char* d_keys = d_qkv + shape_.attention * size_;
  return kernels_.attention_backward(
      device_, stream_, &attention, qkv, keys, keys + values, AttentionOutput(),
      reinterpret_cast<const float*>(Saved(layout_.saved.lse)),
      Workspace(layout_.workspace.wide), d_qkv, d_keys, d_keys + values,
      Workspace(layout_.workspace.scratch));
}

// The last slice runs first and sets the cache's gradients, the others add to
// them. When a slice has added its own, those of its keys are complete.
PwStatus Pass::AttentionSliceBackward(int64_t sequence) {
  const PwAttention attention = AttentionOf(model_, work_);
  const int64_t values = shape_.kv / 2 * size_;
  const int64_t token = sequence * work_.slice_tokens;
  const int64_t cached = sequence * work_.sequence * shape_.kv * size_;
  const char* qkv = Saved(layout_.saved.qkv) + token * shape_.qkv * size_;
  const char* keys = Cache(layout_.cache.keys) + cached;
  char* d_qkv = QkvGradient() + token * shape_.qkv * size_;
  char* d_cached = Cache(layout_.cache.gradients) + cached;
  const bool last = shape_.seen == work_.sequence;
  char* d_keys = last ? d_cached : Workspace(layout_.workspace.kv);
  const int64_t row = shape_.attention * size_;
  PW_RETURN_IF_ERROR(kernels_.attention_backward(
      device_, stream_, &attention, qkv, keys, keys + values,
      AttentionOutput() + token * row,
      reinterpret_cast<const float*>(Saved(layout_.saved.lse)) +
          token * shape_.heads,
      Workspace(layout_.workspace.wide) + token * row, d_qkv, d_keys,
      d_keys + values, Workspace(layout_.workspace.scratch)));
  if (!last) {
    PW_RETURN_IF_ERROR(kernels_.add(device_, stream_, model_.type,
                                    shape_.seen * shape_.kv, d_cached, d_keys,
                                    d_cached));
  }
  return kernels_.copy_rows(device_, stream_, model_.type, work_.slice_tokens,
                            shape_.kv,
                            d_cached + work_.slice_first * shape_.kv * size_,
                            shape_.kv, d_qkv + row, shape_.qkv);
}

// The embedding and the head.
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
