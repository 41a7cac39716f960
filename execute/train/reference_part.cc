#include "execute/train/reference_part.h"

#include <utility>

#include "sim/base/check.h"

namespace pipewright::reference {
namespace {

class Embedding : public ReferencePart {
 public:
  Embedding(const PwModel& model, const Sample& sample,
            const Named<const double>& weights)
      : hidden_(model.hidden), sample_(sample), weights_(weights) {}

  Values Forward(const Values&) override {
    Values y(sample_.rows() * hidden_);
    const double* const positions = weights_["positions"];
    for (int64_t row = 0; row < sample_.rows(); ++row) {
      const int64_t place = row % sample_.tokens;
      for (int64_t column = 0; column < hidden_; ++column) {
        y[row * hidden_ + column] =
            weights_["table"][sample_.ids[row] * hidden_ + column] +
            (positions == nullptr ? 0 : positions[place * hidden_ + column]);
      }
    }
    return y;
  }

  Values Backward(const Values& dy, const Named<double>& gradients) override {
    double* const table = gradients["table"];
    double* const positions = gradients["positions"];
    for (int64_t row = 0; row < sample_.rows(); ++row) {
      const int64_t place = row % sample_.tokens;
      for (int64_t column = 0; column < hidden_; ++column) {
        const double slope = dy[row * hidden_ + column];
        table[sample_.ids[row] * hidden_ + column] += slope;
        if (positions != nullptr) positions[place * hidden_ + column] += slope;
      }
    }
    return {};
  }

 private:
  const int64_t hidden_;
  const Sample& sample_;
  const Named<const double> weights_;
};

class Head : public ReferencePart {
 public:
  Head(const PwModel& model, const Sample& sample,
       const Named<const double>& weights)
      : model_(model), sample_(sample), weights_(weights) {}

  Values Forward(const Values& x) override {
    normed_ = Norm(x, weights_["norm.gamma"], weights_["norm.beta"],
                   model_.hidden, model_.epsilon);
    d_logits_ = Linear(normed_.y.data(), weights_["output"], nullptr,
                       sample_.rows(), model_.hidden, model_.vocabulary);
    return {CrossEntropy(sample_.targets, sample_.loss_scale, &d_logits_)};
  }

  Values Backward(const Values&, const Named<double>& gradients) override {
    const Values d_normed = LinearBackward(
        normed_.y.data(), weights_["output"], d_logits_.data(), sample_.rows(),
        model_.hidden, model_.vocabulary, gradients["output"], nullptr);
    return NormBackward(normed_, d_normed, weights_["norm.gamma"],
                        model_.hidden, gradients["norm.gamma"],
                        gradients["norm.beta"]);
  }

 private:
  const PwModel& model_;
  const Sample& sample_;
  const Named<const double> weights_;
  Normed normed_;
  Values d_logits_;
};

// y = m + feed-forward(norm2(m)), m = x + attention(norm1(x)).
class Layer : public ReferencePart {
 public:
  Layer(const PwModel& model, const Sample& sample, bool experts,
        const Named<const double>& weights)
      : model_(model), rows_(sample.rows()), weights_(weights) {
    heads_ = {.sequences = sample.sequences,
              .tokens = sample.tokens,
              .heads = model.heads,
              .kv_heads = model.kv_heads,
              .head_dim = model.head_dim,
              .causal = model.causal != 0};
    up_ = model.style == PW_LLAMA ? 2 * model.ffn : model.ffn;
    if (experts) {
      experts_ = std::make_unique<Experts>(model, rows_, weights);
    }
  }

  Values Forward(const Values& x) override {
    normed1_ = Normalise("norm1", x);
    qkv_ = Times("qkv", normed1_.y, model_.hidden, heads_.width());
    Turn(&qkv_, 1);
    attention_ = Attention(heads_, qkv_);
    Values middle = Times("out", attention_, heads_.queries(), model_.hidden);
    AddTo(x, &middle);
    normed2_ = Normalise("norm2", middle);
    Values y;
    if (experts_ != nullptr) {
      y = experts_->Forward(normed2_.y);
    } else {
      wide_ = Times("up", normed2_.y, model_.hidden, up_);
      active_ = Activation(model_.style, wide_, model_.ffn);
      y = Times("down", active_, model_.ffn, model_.hidden);
    }
    AddTo(middle, &y);
    return y;
  }

  Values Backward(const Values& dy, const Named<double>& gradients) override {
    Values d_normed2;
    if (experts_ != nullptr) {
      d_normed2 = experts_->Backward(dy, gradients);
    } else {
      const Values d_active = TimesBackward("down", active_, dy, model_.ffn,
                                            model_.hidden, gradients);
      const Values d_wide =
          ActivationBackward(model_.style, wide_, d_active, model_.ffn);
      d_normed2 = TimesBackward("up", normed2_.y, d_wide, model_.hidden, up_,
                                gradients);
    }
    Values d_middle =
        NormaliseBackward("norm2", normed2_, d_normed2, gradients);
    AddTo(dy, &d_middle);
    const Values d_attention =
        TimesBackward("out", attention_, d_middle, heads_.queries(),
                      model_.hidden, gradients);
    Values d_qkv = AttentionBackward(heads_, qkv_, d_attention);
    Turn(&d_qkv, -1);
    const Values d_normed1 = TimesBackward(
        "qkv", normed1_.y, d_qkv, model_.hidden, heads_.width(), gradients);
    Values dx = NormaliseBackward("norm1", normed1_, d_normed1, gradients);
    AddTo(d_middle, &dx);
    return dx;
  }

 private:
  Normed Normalise(const std::string& name, const Values& x) const {
    return Norm(x, weights_[name + ".gamma"], weights_[name + ".beta"],
                model_.hidden, model_.epsilon);
  }
  Values NormaliseBackward(const std::string& name, const Normed& forward,
                           const Values& dy,
                           const Named<double>& gradients) const {
    return NormBackward(forward, dy, weights_[name + ".gamma"], model_.hidden,
                        gradients[name + ".gamma"], gradients[name + ".beta"]);
  }
  Values Times(const std::string& name, const Values& x, int64_t inputs,
               int64_t outputs) const {
    return Linear(x.data(), weights_[name], weights_[name + ".bias"], rows_,
                  inputs, outputs);
  }
  Values TimesBackward(const std::string& name, const Values& x,
                       const Values& dy, int64_t inputs, int64_t outputs,
                       const Named<double>& gradients) const {
    return LinearBackward(x.data(), weights_[name], dy.data(), rows_, inputs,
                          outputs, gradients[name], gradients[name + ".bias"]);
  }
  // Positions of queries and keys; those of GPT are in the embedding.
  void Turn(Values* qkv, int direction) const {
    if (model_.style != PW_LLAMA) return;
    Rotate(qkv, heads_.tokens, heads_.width(), heads_.heads + heads_.kv_heads,
           heads_.head_dim, model_.rotary_base, direction);
  }

  const PwModel& model_;
  const int64_t rows_;
  const Named<const double> weights_;
  Heads heads_;
  int64_t up_;
  std::unique_ptr<Experts> experts_;
  Normed normed1_, normed2_;
  Values qkv_, attention_, wide_, active_;
};

}  // namespace

std::unique_ptr<ReferencePart> MakePart(const PwModel& model,
                                        const Sample& sample, PwPart kind,
                                        const Named<const double>& weights) {
  switch (kind) {
    case PW_EMBEDDING:
      return std::make_unique<Embedding>(model, sample, weights);
    case PW_HEAD:
      return std::make_unique<Head>(model, sample, weights);
    case PW_LAYER:
    case PW_EXPERT_LAYER:
      return std::make_unique<Layer>(model, sample, kind == PW_EXPERT_LAYER,
                                     weights);
  }
  PW_CHECK(false);
  return nullptr;
}

}  // namespace pipewright::reference
