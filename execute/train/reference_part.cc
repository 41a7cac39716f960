#include "execute/train/reference_part.h"

#include <algorithm>
#include <cmath>
#include <numeric>
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

// The mixture of experts of the float64 reference: each token and each of its
// experts by itself.

namespace {

int64_t Wide(const PwModel& model, int64_t ffn) {
  return model.style == PW_LLAMA ? 2 * ffn : ffn;
}

}  // namespace

// The forced choice deals the experts out in turn; a router takes the largest
// logits, of equals the first.
std::vector<int64_t> Experts::Choose(int64_t token,
                                     const double* logits) const {
  std::vector<int64_t> chosen(model_.experts);
  std::iota(chosen.begin(), chosen.end(), 0);
  if (model_.balanced != 0) {
    for (int64_t nth = 0; nth < model_.experts_per_token; ++nth) {
      chosen[nth] = (token * model_.experts_per_token + nth) % model_.experts;
    }
  } else {
    std::stable_sort(chosen.begin(), chosen.end(), [&](int64_t a, int64_t b) {
      return logits[a] > logits[b];
    });
  }
  chosen.resize(model_.experts_per_token);
  return chosen;
}

Values Experts::Forward(const Values& x) {
  const int64_t hidden = model_.hidden;
  const int64_t wide = Wide(model_, model_.expert_ffn);
  x_ = x;
  experts_.assign(model_.experts, {});
  const Values logits = Linear(x.data(), weights_["router"], nullptr, rows_,
                               hidden, model_.experts);
  for (int64_t token = 0; token < rows_; ++token) {
    const double* const own = logits.data() + token * model_.experts;
    const std::vector<int64_t> chosen = Choose(token, own);
    double sum = 0;
    for (const int64_t expert : chosen) sum += std::exp(own[expert]);
    for (const int64_t number : chosen) {
      Expert& expert = experts_[number];
      expert.slots.push_back(
          {.token = token, .weight = std::exp(own[number]) / sum});
      const double* const row = x.data() + token * hidden;
      expert.x.insert(expert.x.end(), row, row + hidden);
    }
  }
  Values y = SharedForward();
  for (int64_t number = 0; number < model_.experts; ++number) {
    Expert& expert = experts_[number];
    expert.wide =
        Linear(expert.x.data(), weights_["experts.up"] + number * wide * hidden,
               nullptr, expert.rows(), hidden, wide);
    expert.active = Activation(model_.style, expert.wide, model_.expert_ffn);
    expert.out =
        Linear(expert.active.data(),
               weights_["experts.down"] + number * hidden * model_.expert_ffn,
               nullptr, expert.rows(), model_.expert_ffn, hidden);
    for (size_t place = 0; place < expert.slots.size(); ++place) {
      const Slot& slot = expert.slots[place];
      for (int64_t column = 0; column < hidden; ++column) {
        y[slot.token * hidden + column] +=
            slot.weight * expert.out[place * hidden + column];
      }
    }
  }
  return y;
}

Values Experts::SharedForward() {
  if (model_.shared_ffn == 0) return Values(x_.size());
  shared_wide_ = Linear(x_.data(), weights_["shared.up"], nullptr, rows_,
                        model_.hidden, Wide(model_, model_.shared_ffn));
  shared_active_ = Activation(model_.style, shared_wide_, model_.shared_ffn);
  return Linear(shared_active_.data(), weights_["shared.down"], nullptr, rows_,
                model_.shared_ffn, model_.hidden);
}

// A weight w = exp(l) / sum exp(l) of the chosen logits l: with g the gradients
// of the weights, dl = w (g - sum(w g)).
Values Experts::Backward(const Values& dy, const Named<double>& gradients) {
  const int64_t hidden = model_.hidden;
  const int64_t wide = Wide(model_, model_.expert_ffn);
  Values dx = SharedBackward(dy, gradients);
  Values d_weights(rows_ * model_.experts);
  Values means(rows_);
  for (int64_t number = 0; number < model_.experts; ++number) {
    const Expert& expert = experts_[number];
    Values d_out(expert.out.size());
    for (size_t place = 0; place < expert.slots.size(); ++place) {
      const Slot& slot = expert.slots[place];
      const double* const out = dy.data() + slot.token * hidden;
      const double* const own = expert.out.data() + place * hidden;
      const double slope = std::inner_product(out, out + hidden, own, 0.0);
      d_weights[slot.token * model_.experts + number] = slope;
      means[slot.token] += slot.weight * slope;
      for (int64_t column = 0; column < hidden; ++column) {
        d_out[place * hidden + column] = slot.weight * out[column];
      }
    }
    const int64_t down = number * hidden * model_.expert_ffn;
    const int64_t up = number * wide * hidden;
    const Values d_active =
        LinearBackward(expert.active.data(), weights_["experts.down"] + down,
                       d_out.data(), expert.rows(), model_.expert_ffn, hidden,
                       gradients["experts.down"] + down, nullptr);
    const Values d_wide = ActivationBackward(model_.style, expert.wide,
                                             d_active, model_.expert_ffn);
    const Values d_in = LinearBackward(
        expert.x.data(), weights_["experts.up"] + up, d_wide.data(),
        expert.rows(), hidden, wide, gradients["experts.up"] + up, nullptr);
    for (size_t place = 0; place < expert.slots.size(); ++place) {
      const int64_t token = expert.slots[place].token;
      for (int64_t column = 0; column < hidden; ++column) {
        dx[token * hidden + column] += d_in[place * hidden + column];
      }
    }
  }
  Values d_logits(d_weights.size());
  for (int64_t number = 0; number < model_.experts; ++number) {
    for (const Slot& slot : experts_[number].slots) {
      const int64_t at = slot.token * model_.experts + number;
      d_logits[at] = slot.weight * (d_weights[at] - means[slot.token]);
    }
  }
  AddTo(LinearBackward(x_.data(), weights_["router"], d_logits.data(), rows_,
                       hidden, model_.experts, gradients["router"], nullptr),
        &dx);
  return dx;
}

Values Experts::SharedBackward(const Values& dy,
                               const Named<double>& gradients) const {
  if (model_.shared_ffn == 0) return Values(dy.size());
  const Values d_active = LinearBackward(
      shared_active_.data(), weights_["shared.down"], dy.data(), rows_,
      model_.shared_ffn, model_.hidden, gradients["shared.down"], nullptr);
  const Values d_wide = ActivationBackward(model_.style, shared_wide_, d_active,
                                           model_.shared_ffn);
  return LinearBackward(x_.data(), weights_["shared.up"], d_wide.data(), rows_,
                        model_.hidden, Wide(model_, model_.shared_ffn),
                        gradients["shared.up"], nullptr);
}

}  // namespace pipewright::reference
