// Attention: cuDNN where it has a plan for the shape, the backend's own
// kernels (plain_attention_*.cu) everywhere else.
#include <algorithm>

#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/functions.h"
#include "kernels/cuda/sdpa.h"

namespace pipewright::cuda {
namespace {

PwStatus Check(const PwAttention& shape) {
  if (shape.batch < 1 || shape.queries < 1 || shape.heads < 1 ||
      shape.kv_heads < 1 || shape.head_dim < 1) {
    return Fail(PW_INVALID, "attention: sizes below 1");
  }
  if (shape.heads % shape.kv_heads != 0) {
    return Fail(PW_INVALID, "attention: kv_heads must divide heads");
  }
  if (shape.causal != 0 && shape.keys < shape.queries) {
    return Fail(PW_INVALID, "attention: causal with fewer keys than queries");
  }
  if (shape.keys < 1) return Fail(PW_INVALID, "attention: no keys");
  if (shape.type != PW_FP32 && shape.type != PW_BF16) {
    return Fail(PW_INVALID, "attention: fp32 and bf16 only");
  }
  return PW_OK;
}

// The graphs promise cuDNN 16 bytes.
bool Aligned(const AttentionTensors& tensors) {
  for (const void* pointer :
       {tensors.q, tensors.k, tensors.v, static_cast<const void*>(tensors.o),
        tensors.d_o, static_cast<const void*>(tensors.dq),
        static_cast<const void*>(tensors.dk),
        static_cast<const void*>(tensors.dv)}) {
    if (AlignmentOf(pointer, 16) != 16) return false;
  }
  return true;
}

PwStatus Run(PwDevice* device, PwStream* stream, const PwAttention& shape,
             bool backward, const AttentionTensors& tensors) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_RETURN_IF_FAILED(Check(shape));
  PwStream* on = StreamOf(device, stream);
  size_t workspace = 0;
  device->implementation = "own attention";
  if (Aligned(tensors)) {
    AttentionPlans& plans = *device->attention_plans;
    if (plans.Takes(shape, backward, &workspace)) {
      return plans.Run(device, on, shape, backward, tensors);
    }
    // Ours take tens of times as long, so it must not go unseen.
    if (!plans.Refusal().empty()) {
      device->implementation += "; " + plans.Refusal();
    }
  }
  return backward ? PlainAttentionBackward(device, on, shape, tensors)
                  : PlainAttentionForward(device, on, shape, tensors);
}

}  // namespace

size_t AttentionWorkspace(PwDevice* device, const PwAttention* shape,
                          int32_t backward) {
  if (Enter(device) != PW_OK || Check(*shape) != PW_OK) return 0;
  // Enough for either, as addresses decide too.
  size_t own = 0;
  if (backward != 0) {
    own = static_cast<size_t>(shape->batch * shape->heads * shape->queries) *
          sizeof(float);
  }
  size_t cudnn = 0;
  device->attention_plans->Takes(*shape, backward != 0, &cudnn);
  return std::max(own, cudnn);
}

PwStatus AttentionForward(PwDevice* device, PwStream* stream,
                          const PwAttention* shape, const void* q,
                          const void* k, const void* v, void* o, float* lse,
                          void* workspace) {
  return Run(
      device, stream, *shape, false,
      {.q = q, .k = k, .v = v, .o = o, .lse = lse, .workspace = workspace});
}

PwStatus AttentionBackward(PwDevice* device, PwStream* stream,
                           const PwAttention* shape, const void* q,
                           const void* k, const void* v, const void* o,
                           const float* lse, const void* d_o, void* dq,
                           void* dk, void* dv, void* workspace) {
  return Run(device, stream, *shape, true,
             {.q = q,
              .k = k,
              .v = v,
              .o = const_cast<void*>(o),
              .lse = const_cast<float*>(lse),
              .d_o = d_o,
              .dq = dq,
              .dk = dk,
              .dv = dv,
              .workspace = workspace});
}

}  // namespace pipewright::cuda
