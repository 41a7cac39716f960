// The parts of a model in float64 (RefPart of kernel_reference.h).
#include <math.h>

#include <algorithm>
#include <string>

#include "tests/support/kernel_reference.h"

namespace pipewright {
namespace {

class Part {
 public:
  Part(const PwModel& model, const PwWork& work, PwPart part,
       const RefPartInput& in)
      : model_(model), work_(work), part_(part), in_(in) {
    count_ = pw_part_tensors(&model, part, tensors_);
    tokens_ = work.batch * work.sequence;
    rows_ = model.sequence_parallel ? tokens_ / model.tp : tokens_;
    heads_ = model.heads / model.tp;
    kv_heads_ = std::max<int64_t>(1, model.kv_heads / model.tp);
    queries_ = heads_ * model.head_dim;
    kv_ = kv_heads_ * model.head_dim;
    ffn_ = model.ffn / model.tp;
    up_ = model.style == PW_LLAMA ? 2 * ffn_ : ffn_;
    vocabulary_ = model.vocabulary / model.tp;
    norm_ = model.style == PW_LLAMA ? PW_RMS_NORM : PW_LAYER_NORM;
    activation_ = model.style == PW_LLAMA ? PW_SWIGLU : PW_GELU;
    out_.gradients.assign(in.weights.size(), 0);
  }

  RefPartOutput Run(bool backward) {
    if (part_ == PW_EMBEDDING) {
      Embedding(backward);
    } else if (part_ == PW_HEAD) {
      Head(backward);
    } else {
      Layer(backward);
    }
    return out_;
  }

 private:
  // Null where the style has none.
  const PwTensor* Find(const std::string& name) const {
    for (int32_t index = 0; index < count_; ++index) {
      if (name == tensors_[index].name) return &tensors_[index];
    }
    return nullptr;
  }
  Values Weight(const std::string& name) const {
    const PwTensor* tensor = Find(name);
    if (tensor == nullptr) return {};
    const auto start = in_.weights.begin() + tensor->offset;
    return Values(start, start + tensor->rows * tensor->columns);
  }
  void AddGradient(const std::string& name, const Values& gradient) {
    const PwTensor* tensor = Find(name);
    if (tensor == nullptr) return;
    for (size_t index = 0; index < gradient.size(); ++index) {
      out_.gradients[tensor->offset + index] += gradient[index];
    }
  }
  Values Linear(const std::string& name, const Values& x, int64_t inputs,
                int64_t outputs) const {
    return RefLinear(Stored(name, RefOperand::kInput, x),
                     Stored(name, RefOperand::kWeight, Weight(name)),
                     Weight(name + ".bias"), tokens_, inputs, outputs);
  }
  Values Stored(const std::string& name, RefOperand operand,
                const Values& exact) const {
    return part_ == PW_LAYER && in_.stored ? in_.stored(name, operand, exact)
                                           : exact;
  }
  Values LinearBackward(const std::string& name, const Values& x,
                        const Values& dy, int64_t inputs, int64_t outputs) {
    const Values used = Stored(name, RefOperand::kGradient, dy);
    AddGradient(name, RefLinearWeight(Stored(name, RefOperand::kInput, x), used,
                                      tokens_, inputs, outputs));
    AddGradient(name + ".bias", RefColumnSums(dy, tokens_, outputs));
    return RefLinearInput(used, Stored(name, RefOperand::kWeight, Weight(name)),
                          tokens_, inputs, outputs);
  }
  // The rows of the other devices are 0.
  Values Gather(Values values) const {
    values.resize(tokens_ * model_.hidden);
    return values;
  }
  Values Scatter(Values values) const {
    values.resize(rows_ * model_.hidden);
    return values;
  }
  Values Norm(const std::string& name, const Values& x) const {
    return Gather(RefNorm(norm_, x, Weight(name + ".gamma"),
                          Weight(name + ".beta"), model_.epsilon));
  }
  Values NormBackward(const std::string& name, const Values& dy,
                      const Values& x) {
    const RefNormGradients gradients = RefNormBackward(
        norm_, Scatter(dy), x, Weight(name + ".gamma"), model_.epsilon);
    AddGradient(name + ".gamma", gradients.gamma);
    AddGradient(name + ".beta", gradients.beta);
    return gradients.x;
  }
  static Values Sum(Values a, const Values& b) {
    for (size_t index = 0; index < a.size(); ++index) a[index] += b[index];
    return a;
  }

  // Columns [first, first + count) of the fused matrix, and back.
  Values Columns(const Values& qkv, int64_t first, int64_t count) const {
    const int64_t width = queries_ + 2 * kv_;
    Values part;
    for (int64_t token = 0; token < tokens_; ++token) {
      const auto start = qkv.begin() + token * width + first;
      part.insert(part.end(), start, start + count);
    }
    return part;
  }
  void PutColumns(const Values& part, int64_t first, int64_t count,
                  Values* qkv) const {
    const int64_t width = queries_ + 2 * kv_;
    for (int64_t token = 0; token < tokens_; ++token) {
      std::copy_n(part.begin() + token * count, count,
                  qkv->begin() + token * width + first);
    }
  }
  Values Rotate(const Values& qkv, bool inverse) const {
    if (model_.style != PW_LLAMA) return qkv;
    return RefRotary(qkv, work_.batch, work_.sequence, heads_ + kv_heads_,
                     model_.head_dim, queries_ + 2 * kv_, 0, model_.rotary_base,
                     inverse);
  }
  PwAttention AttentionShape() const {
    PwAttention shape{};
    shape.causal = model_.causal;
    shape.batch = work_.batch;
    shape.queries = shape.keys = work_.sequence;
    shape.heads = heads_;
    shape.kv_heads = kv_heads_;
    shape.head_dim = model_.head_dim;
    // As single as in the kernels, so that it is no source of difference.
    shape.scale = 1.0f / sqrtf(model_.head_dim);
    return shape;
  }

  void Embedding(bool backward) {
    const int64_t hidden = model_.hidden;
    const Values table = Weight("table");
    const Values positions = Weight("positions");
    Values y(tokens_ * hidden);
    Values dtable(table.size());
    Values dpositions(positions.size());
    const Values dy = backward ? Gather(in_.output_gradient) : Values(y.size());
    for (size_t index = 0; index < y.size(); ++index) {
      const int64_t token = index / hidden;
      const int64_t entry = in_.ids[token] * hidden + index % hidden;
      const int64_t place = token % work_.sequence * hidden + index % hidden;
      y[index] = table[entry];
      dtable[entry] += dy[index];
      if (positions.empty()) continue;
      y[index] += positions[place];
      dpositions[place] += dy[index];
    }
    out_.output = Scatter(y);
    AddGradient("table", dtable);
    AddGradient("positions", dpositions);
  }

  void Head(bool backward) {
    const Values normal = Norm("norm", in_.input);
    const Values logits = Linear("output", normal, model_.hidden, vocabulary_);
    out_.losses = RefCrossEntropy(logits, in_.ids, nullptr);
    if (!backward) return;
    const Values gradient =
        RefCrossEntropyBackward(logits, in_.ids, in_.loss_scale);
    out_.input_gradient = NormBackward(
        "norm",
        LinearBackward("output", normal, gradient, model_.hidden, vocabulary_),
        in_.input);
  }

  // Each adds its block to `middle` and gives the gradient of its input.
  void FeedForward(const Values& normal, const Values& middle, bool backward,
                   Values* d_normal) {
    const int64_t hidden = model_.hidden;
    const Values wide = Linear("up", normal, hidden, up_);
    const Values active = RefActivation(activation_, wide, tokens_, ffn_);
    out_.output = Sum(middle, Linear("down", active, ffn_, hidden));
    if (!backward) return;
    const Values d_active = LinearBackward(
        "down", active, Gather(in_.output_gradient), ffn_, hidden);
    const Values d_wide =
        RefActivationBackward(activation_, wide, d_active, tokens_, ffn_);
    *d_normal = LinearBackward("up", normal, d_wide, hidden, up_);
  }
  void Experts(const Values& normal, const Values& middle, bool backward,
               Values* d_normal) {
    const RefExpertWeights weights = {
        Weight("router"), Weight("experts.up"), Weight("experts.down"),
        Weight("shared.up"), Weight("shared.down")};
    const RefExpertsOutput out =
        RefExperts(model_, tokens_, normal, weights,
                   backward ? &in_.output_gradient : nullptr);
    out_.output = Sum(middle, out.y);
    if (!backward) return;
    *d_normal = out.dx;
    AddGradient("router", out.gradients.router);
    AddGradient("experts.up", out.gradients.up);
    AddGradient("experts.down", out.gradients.down);
    AddGradient("shared.up", out.gradients.shared_up);
    AddGradient("shared.down", out.gradients.shared_down);
  }

  void Layer(bool backward) {
    const int64_t hidden = model_.hidden;
    const int64_t width = queries_ + 2 * kv_;
    const Values& x = in_.input;
    const Values normal1 = Norm("norm1", x);
    const Values qkv = Rotate(Linear("qkv", normal1, hidden, width), false);
    const Values q = Columns(qkv, 0, queries_);
    const Values k = Columns(qkv, queries_, kv_);
    const Values v = Columns(qkv, queries_ + kv_, kv_);
    const Values attention = RefAttentionForward(AttentionShape(), q, k, v).o;
    const Values middle = Sum(x, Linear("out", attention, queries_, hidden));
    const Values normal2 = Norm("norm2", middle);
    Values d_normal2;
    if (part_ == PW_EXPERT_LAYER) {
      Experts(normal2, middle, backward, &d_normal2);
    } else {
      FeedForward(normal2, middle, backward, &d_normal2);
    }
    if (!backward) return;
    const Values& dy = in_.output_gradient;
    const Values d_middle = Sum(NormBackward("norm2", d_normal2, middle), dy);
    const Values d_attention =
        LinearBackward("out", attention, Gather(d_middle), queries_, hidden);
    const RefAttentionGradients core =
        RefAttentionBackward(AttentionShape(), q, k, v, d_attention);
    Values d_qkv(qkv.size());
    PutColumns(core.q, 0, queries_, &d_qkv);
    PutColumns(core.k, queries_, kv_, &d_qkv);
    PutColumns(core.v, queries_ + kv_, kv_, &d_qkv);
    const Values d_normal1 =
        LinearBackward("qkv", normal1, Rotate(d_qkv, true), hidden, width);
    out_.input_gradient = Sum(NormBackward("norm1", d_normal1, x), d_middle);
  }

  const PwModel& model_;
  const PwWork& work_;
  PwPart part_;
  const RefPartInput& in_;
  PwTensor tensors_[PW_MAX_TENSORS];
  int32_t count_;
  int64_t tokens_, rows_, heads_, kv_heads_, queries_, kv_, ffn_, up_;
  int64_t vocabulary_;
  PwNorm norm_;
  PwActivation activation_;
  RefPartOutput out_;
};

}  // namespace

RefPartOutput RefPart(const PwModel& model, const PwWork& work, PwPart part,
                      const RefPartInput& in, bool backward) {
  return Part(model, work, part, in).Run(backward);
}

}  // namespace pipewright
