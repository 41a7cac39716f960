// The core of attention inside a layer: rotary positions, the cache of slices.
// Queries, keys and values lie side by side in the rows of one matrix; in the
// cache there are keys and values only.
#include "kernels/layer_pass.h"

namespace pipewright {

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

}  // namespace pipewright
