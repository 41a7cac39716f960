// Shared by the passes of layer.h: the shapes of one device, the places of
// weights in a part's parameters, and the places of tensors in its blocks of
// memory. Not for callers of layer.h.
#ifndef PIPEWRIGHT_KERNELS_LAYER_PLAN_H_
#define PIPEWRIGHT_KERNELS_LAYER_PLAN_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/layer.h"

namespace pipewright {

// One device's sizes; in elements.
struct PartShape {
  int64_t tokens;  // for the linear layers
  int64_t rows;    // for norms and residuals; tokens / tp where those are split
  int64_t hidden;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t attention;  // heads * head_dim
  int64_t qkv;        // columns of queries, keys and values
  int64_t kv;         // columns of keys and values
  int64_t ffn;
  int64_t up;  // outputs of the first feed-forward matrix
  int64_t vocabulary;
  int64_t seen;  // positions up to the slice's end
  bool sliced;
  // Sizes of expert layers.
  int64_t experts;      // for the router
  int64_t own_experts;  // on this device
  int64_t expert_rows;  // tokens times the experts of each
  int64_t expert_ffn;
  int64_t expert_up;
  int64_t shared_ffn;  // 0: none
  int64_t shared_up;
};

PartShape ShapeOf(const PwModel& model, const PwWork& work);

// In place of an offset: the matrix is PwPartMemory.table.
constexpr int64_t kTiedTable = -2;

// Offsets of a part's weights in elements; -1: the style has none.
struct PartWeights {
  int64_t gamma1 = -1;
  int64_t beta1 = -1;
  int64_t qkv = -1;
  int64_t qkv_bias = -1;
  int64_t out = -1;
  int64_t out_bias = -1;
  int64_t gamma2 = -1;
  int64_t beta2 = -1;
  int64_t up = -1;
  int64_t up_bias = -1;
  int64_t down = -1;
  int64_t down_bias = -1;
  int64_t table = -1;
  int64_t positions = -1;
  int64_t output = -1;
  int64_t router = -1;
  int64_t shared_up = -1;
  int64_t shared_down = -1;
  int64_t elements = 0;  // all tensors together
};

// `tensors` may be null; else it is filled, at most PW_MAX_TENSORS, and
// `*count` says how many there are.
PartWeights WeightsOf(const PwModel& model, PwPart part, PwTensor* tensors,
                      int32_t* count);

// qkv, out, up and down of a layer, in this order.
constexpr int kFp8Matrices = 4;

// Offsets in bytes, each into the block it is listed under.
struct PartLayout {
  struct {
    size_t input, middle, statistics1, statistics2, qkv, lse, wide;
    size_t attention;  // fp8 only, else it is in inputs
    size_t rows, ids, weights, places, shared;  // for expert layers
  } saved;
  // With fp8, as those of grads: quantised and transposed.
  struct {
    size_t normal1, attention, normal2, active;
    size_t rows, counts, shared;  // for expert layers
    size_t scales;                // fp8: one of each
  } inputs;
  struct {
    size_t qkv, out, wide, down;
    size_t logits, shared, shared_down;  // for expert layers
    size_t scales, biases;  // fp8: one of each; sums over the tokens, fp32
  } grads;
  struct {
    size_t keys, gradients;  // [batch, sequence, keys and values]
  } cache;
  struct {
    size_t hidden, wide, kv, scratch;
    size_t rows, logits, weights;  // for expert layers
    // fp8 only: a tensor as products read it; the gradient of qkv or of wide;
    // that in the middle of the layer.
    size_t quantized, gradient, middle;
  } workspace;
  size_t saved_bytes, inputs_bytes, grads_bytes, cache_bytes, workspace_bytes;
};

PartLayout LayoutOf(const PwKernels& kernels, PwDevice* device,
                    const PwModel& model, const PwWork& work, PwPart part);

// Route of an expert layer.
PwRoute RouteOf(const PwModel& model, const PwWork& work);

// The attention of all sequences at once or, in slices, of one.
PwAttention AttentionOf(const PwModel& model, const PwWork& work);

int64_t TypeSize(PwType type);

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_LAYER_PLAN_H_
