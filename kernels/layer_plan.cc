#include "kernels/layer_plan.h"

#include <math.h>
#include <stdio.h>

#include <algorithm>

namespace pipewright {
namespace {

// The alignment of tensors inside a block, for the widest loads of a GPU.
constexpr size_t kAlignment = 256;
// The alignment of tensors inside the parameters: 64 bytes of the narrowest
// type, so that kernels.h's promise holds.
constexpr int64_t kTensorElements = 32;
// Normal with deviation 0.02 (Radford et al., GPT-2), as a uniform one.
const float kInit = 0.02f * sqrtf(3.0f);

class Block {
 public:
  size_t Take(int64_t elements, int64_t size) {
    const size_t taken = bytes_;
    bytes_ += (elements * size + kAlignment - 1) / kAlignment * kAlignment;
    return taken;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

class TensorList {
 public:
  TensorList(PartWeights* weights, PwTensor* tensors)
      : weights_(*weights), tensors_(tensors) {}

  // Not all alike, so that a pass that leaves one out gives other numbers.
  void Vector(const char* name, int64_t size, float mean, int64_t* offset) {
    Put(name, 1, size, kInit, mean, offset);
  }
  void Matrix(const char* name, int64_t rows, int64_t columns,
              int64_t* offset) {
    Put(name, rows, columns, kInit, 0, offset);
  }
  int32_t count() const { return count_; }

 private:
  void Put(const char* name, int64_t rows, int64_t columns, float init,
           float mean, int64_t* offset) {
    *offset = weights_.elements;
    if (tensors_ != nullptr) {
      PwTensor& tensor = tensors_[count_];
      snprintf(tensor.name, sizeof(tensor.name), "%s", name);
      tensor.offset = *offset;
      tensor.rows = rows;
      tensor.columns = columns;
      tensor.init = init;
      tensor.mean = mean;
    }
    ++count_;
    weights_.elements += (rows * columns + kTensorElements - 1) /
                         kTensorElements * kTensorElements;
  }

  PartWeights& weights_;
  PwTensor* tensors_;
  int32_t count_ = 0;
};

void AddNorm(const PwModel& model, const char* gamma, const char* beta,
             int64_t* gamma_offset, int64_t* beta_offset, TensorList* list) {
  list->Vector(gamma, model.hidden, 1, gamma_offset);
  if (model.style == PW_GPT) list->Vector(beta, model.hidden, 0, beta_offset);
}

void AddLinear(const PwModel& model, const char* name, const char* bias,
               int64_t outputs, int64_t inputs, int64_t* offset,
               int64_t* bias_offset, TensorList* list) {
  list->Matrix(name, outputs, inputs, offset);
  if (model.style == PW_GPT) list->Vector(bias, outputs, 0, bias_offset);
}

// What an expert layer has in place of a dense feed-forward block.
void TakeExperts(const PwModel& model, const PartShape& shape, Block* saved,
                 Block* inputs, Block* grads, Block* workspace,
                 PartLayout* layout) {
  const int64_t size = TypeSize(model.type);
  const int64_t rows = shape.expert_rows;
  layout->saved.wide = saved->Take(rows * shape.expert_up, size);
  layout->saved.rows = saved->Take(rows * shape.hidden, size);
  layout->saved.ids = saved->Take(rows, 4);
  layout->saved.weights = saved->Take(rows, 4);
  layout->saved.places = saved->Take(rows, 4);
  layout->saved.shared = saved->Take(shape.tokens * shape.shared_up, size);
  layout->inputs.active = inputs->Take(rows * shape.expert_ffn, size);
  layout->inputs.rows = inputs->Take(rows * shape.hidden, size);
  layout->inputs.counts = inputs->Take(shape.own_experts, 4);
  layout->inputs.shared = inputs->Take(shape.tokens * shape.shared_ffn, size);
  layout->grads.wide = grads->Take(rows * shape.expert_up, size);
  layout->grads.down = grads->Take(rows * shape.hidden, size);
  layout->grads.logits = grads->Take(shape.tokens * shape.experts, size);
  layout->grads.shared = grads->Take(shape.tokens * shape.shared_up, size);
  layout->grads.shared_down =
      grads->Take(shape.shared_ffn > 0 ? shape.tokens * shape.hidden : 0, size);
  layout->workspace.wide = workspace->Take(
      std::max({shape.tokens * shape.attention, rows * shape.expert_ffn,
                shape.tokens * shape.shared_ffn}),
      size);
  layout->workspace.rows = workspace->Take(rows * shape.hidden, size);
  layout->workspace.logits =
      workspace->Take(shape.tokens * shape.experts, size);
  layout->workspace.weights = workspace->Take(rows, 4);
}

PartLayout LayerLayout(const PwKernels& kernels, PwDevice* device,
                       const PwModel& model, const PwWork& work, bool experts) {
  const PartShape shape = ShapeOf(model, work);
  const int64_t size = TypeSize(model.type);
  const bool fp8 = model.fp8_linear != 0;
  const int64_t kept = fp8 ? 1 : size;
  PartLayout layout{};
  Block saved;
  layout.saved.input = saved.Take(shape.rows * shape.hidden, size);
  layout.saved.middle = saved.Take(shape.rows * shape.hidden, size);
  layout.saved.statistics1 = saved.Take(2 * shape.rows, 4);
  layout.saved.statistics2 = saved.Take(2 * shape.rows, 4);
  layout.saved.qkv = saved.Take(shape.tokens * shape.qkv, size);
  layout.saved.lse = saved.Take(shape.tokens * shape.heads, 4);
  Block inputs;
  layout.inputs.normal1 = inputs.Take(shape.tokens * shape.hidden, kept);
  layout.inputs.attention = inputs.Take(shape.tokens * shape.attention, kept);
  layout.inputs.normal2 = inputs.Take(shape.tokens * shape.hidden, kept);
  Block grads;
  layout.grads.qkv = grads.Take(shape.tokens * shape.qkv, kept);
  layout.grads.out = grads.Take(shape.tokens * shape.hidden, kept);
  Block workspace;
  layout.workspace.hidden = workspace.Take(shape.tokens * shape.hidden, size);
  if (experts) {
    TakeExperts(model, shape, &saved, &inputs, &grads, &workspace, &layout);
  } else {
    layout.saved.wide = saved.Take(shape.tokens * shape.up, size);
    layout.inputs.active = inputs.Take(shape.tokens * shape.ffn, kept);
    layout.grads.wide = grads.Take(shape.tokens * shape.up, kept);
    layout.grads.down = grads.Take(shape.tokens * shape.hidden, kept);
    layout.workspace.wide = workspace.Take(
        shape.tokens * std::max(shape.ffn, shape.attention), size);
  }
  if (fp8) {
    layout.saved.attention = saved.Take(shape.tokens * shape.attention, size);
    layout.inputs.scales = inputs.Take(kFp8Matrices, PW_SCALE_ALIGNMENT);
    layout.grads.scales = grads.Take(kFp8Matrices, PW_SCALE_ALIGNMENT);
    layout.grads.biases = grads.Take(
        model.style == PW_GPT ? shape.qkv + shape.up + 2 * shape.hidden : 0, 4);
  }
  layout.saved_bytes = saved.bytes();
  layout.inputs_bytes = inputs.bytes();
  layout.grads_bytes = grads.bytes();
  Block cache;
  if (shape.sliced) {
    const int64_t positions = work.batch * work.sequence;
    layout.cache.keys = cache.Take(positions * shape.kv, size);
    layout.cache.gradients = cache.Take(positions * shape.kv, size);
  }
  layout.cache_bytes = cache.bytes();
  layout.workspace.kv =
      workspace.Take(shape.sliced ? shape.seen * shape.kv : 0, size);
  const PwAttention attention = AttentionOf(model, work);
  const size_t scratch =
      std::max({kernels.norm_workspace(device, shape.rows, shape.hidden),
                kernels.attention_workspace(device, &attention, 0),
                kernels.attention_workspace(device, &attention, 1)});
  layout.workspace.scratch = workspace.Take(scratch, 1);
  if (fp8) {
    const int64_t gradient = std::max(shape.up, shape.qkv);
    layout.workspace.quantized = workspace.Take(
        shape.tokens * std::max({gradient, shape.hidden, shape.attention}), 1);
    layout.workspace.gradient = workspace.Take(shape.tokens * gradient, size);
    layout.workspace.middle = workspace.Take(shape.tokens * shape.hidden, size);
  }
  layout.workspace_bytes = workspace.bytes();
  return layout;
}

// Each expert's matrices follow those of the one before, as grouped_gemm wants
// them.
void AddExperts(const PartShape& shape, PartWeights* weights,
                TensorList* list) {
  list->Matrix("router", shape.experts, shape.hidden, &weights->router);
  list->Matrix("experts.up", shape.own_experts * shape.expert_up, shape.hidden,
               &weights->up);
  list->Matrix("experts.down", shape.own_experts * shape.hidden,
               shape.expert_ffn, &weights->down);
  if (shape.shared_ffn == 0) return;
  list->Matrix("shared.up", shape.shared_up, shape.hidden, &weights->shared_up);
  list->Matrix("shared.down", shape.hidden, shape.shared_ffn,
               &weights->shared_down);
}

PartLayout EmbeddingLayout(const PwModel& model, const PwWork& work) {
  const PartShape shape = ShapeOf(model, work);
  const int64_t size = TypeSize(model.type);
  PartLayout layout{};
  Block grads;
  layout.grads.out = grads.Take(shape.tokens * shape.hidden, size);
  layout.grads_bytes = grads.bytes();
  Block workspace;
  layout.workspace.hidden = workspace.Take(shape.tokens * shape.hidden, size);
  layout.workspace_bytes = workspace.bytes();
  return layout;
}

PartLayout HeadLayout(const PwKernels& kernels, PwDevice* device,
                      const PwModel& model, const PwWork& work) {
  const PartShape shape = ShapeOf(model, work);
  const int64_t size = TypeSize(model.type);
  PartLayout layout{};
  Block saved;
  layout.saved.input = saved.Take(shape.rows * shape.hidden, size);
  layout.saved.statistics1 = saved.Take(2 * shape.rows, 4);
  layout.saved.lse = saved.Take(shape.tokens, 4);
  layout.saved_bytes = saved.bytes();
  Block inputs;
  layout.inputs.normal1 = inputs.Take(shape.tokens * shape.hidden, size);
  layout.inputs_bytes = inputs.bytes();
  Block grads;
  layout.grads.wide = grads.Take(shape.tokens * shape.vocabulary, size);
  layout.grads_bytes = grads.bytes();
  Block workspace;
  layout.workspace.hidden = workspace.Take(shape.tokens * shape.hidden, size);
  layout.workspace.scratch = workspace.Take(
      kernels.norm_workspace(device, shape.rows, shape.hidden), 1);
  layout.workspace_bytes = workspace.bytes();
  return layout;
}

}  // namespace

int64_t TypeSize(PwType type) {
  return type == PW_FP32 ? 4 : type == PW_BF16 ? 2 : 1;
}

PartShape ShapeOf(const PwModel& model, const PwWork& work) {
  PartShape shape{};
  shape.tokens = work.batch * work.slice_tokens;
  shape.rows = model.sequence_parallel ? shape.tokens / model.tp : shape.tokens;
  shape.hidden = model.hidden;
  shape.heads = model.heads / model.tp;
  shape.kv_heads = std::max<int64_t>(1, model.kv_heads / model.tp);
  shape.head_dim = model.head_dim;
  shape.attention = shape.heads * shape.head_dim;
  shape.kv = 2 * shape.kv_heads * shape.head_dim;
  shape.qkv = shape.attention + shape.kv;
  shape.ffn = model.ffn / model.tp;
  shape.up = model.style == PW_LLAMA ? 2 * shape.ffn : shape.ffn;
  shape.vocabulary = model.vocabulary / model.tp;
  shape.seen = work.slice_first + work.slice_tokens;
  shape.sliced = work.slice_tokens != work.sequence;
  if (model.experts == 0) return shape;
  const int64_t matrices = model.style == PW_LLAMA ? 2 : 1;
  shape.experts = model.experts;
  shape.own_experts = model.experts / model.ep;
  shape.expert_rows = shape.tokens * model.experts_per_token;
  shape.expert_ffn = model.expert_ffn / model.tp;
  shape.expert_up = matrices * shape.expert_ffn;
  shape.shared_ffn = model.shared_ffn / model.tp;
  shape.shared_up = matrices * shape.shared_ffn;
  return shape;
}

PartWeights WeightsOf(const PwModel& model, PwPart part, PwTensor* tensors,
                      int32_t* count) {
  const PartShape shape = ShapeOf(model, PwWork{1, 1, 0, 1});
  PartWeights weights;
  TensorList list(&weights, tensors);
  if (part == PW_EMBEDDING) {
    list.Matrix("table", shape.vocabulary, shape.hidden, &weights.table);
    if (model.style == PW_GPT) {
      list.Matrix("positions", model.sequence, shape.hidden,
                  &weights.positions);
    }
  } else if (part == PW_HEAD) {
    AddNorm(model, "norm.gamma", "norm.beta", &weights.gamma1, &weights.beta1,
            &list);
    if (model.tied) {
      weights.output = kTiedTable;
    } else {
      list.Matrix("output", shape.vocabulary, shape.hidden, &weights.output);
    }
  } else {
    AddNorm(model, "norm1.gamma", "norm1.beta", &weights.gamma1, &weights.beta1,
            &list);
    AddLinear(model, "qkv", "qkv.bias", shape.qkv, shape.hidden, &weights.qkv,
              &weights.qkv_bias, &list);
    AddLinear(model, "out", "out.bias", shape.hidden, shape.attention,
              &weights.out, &weights.out_bias, &list);
    AddNorm(model, "norm2.gamma", "norm2.beta", &weights.gamma2, &weights.beta2,
            &list);
    if (part == PW_EXPERT_LAYER) {
      AddExperts(shape, &weights, &list);
    } else {
      AddLinear(model, "up", "up.bias", shape.up, shape.hidden, &weights.up,
                &weights.up_bias, &list);
      AddLinear(model, "down", "down.bias", shape.hidden, shape.ffn,
                &weights.down, &weights.down_bias, &list);
    }
  }
  if (count != nullptr) *count = list.count();
  return weights;
}

PwAttention AttentionOf(const PwModel& model, const PwWork& work) {
  const PartShape shape = ShapeOf(model, work);
  PwAttention attention{};
  attention.type = model.type;
  attention.causal = model.causal;
  attention.batch = shape.sliced ? 1 : work.batch;
  attention.queries = work.slice_tokens;
  attention.keys = shape.seen;
  attention.heads = shape.heads;
  attention.kv_heads = shape.kv_heads;
  attention.head_dim = shape.head_dim;
  attention.q_stride = shape.qkv;
  attention.k_stride = shape.sliced ? shape.kv : shape.qkv;
  attention.o_stride = shape.attention;
  attention.scale = 1.0f / sqrtf(static_cast<float>(shape.head_dim));
  return attention;
}

PwRoute RouteOf(const PwModel& model, const PwWork& work) {
  const PartShape shape = ShapeOf(model, work);
  return {model.type,
          shape.tokens,
          model.experts,
          model.experts_per_token,
          static_cast<int32_t>(shape.own_experts),
          model.balanced};
}

PartLayout LayoutOf(const PwKernels& kernels, PwDevice* device,
                    const PwModel& model, const PwWork& work, PwPart part) {
  switch (part) {
    case PW_EMBEDDING:
      return EmbeddingLayout(model, work);
    case PW_HEAD:
      return HeadLayout(kernels, device, model, work);
    default:
      return LayerLayout(kernels, device, model, work, part == PW_EXPERT_LAYER);
  }
}

}  // namespace pipewright
