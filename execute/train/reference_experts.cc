// The mixture of experts of the float64 reference: each token and each of its
// experts by itself.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "execute/train/reference_part.h"

namespace pipewright::reference {
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
