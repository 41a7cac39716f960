// A mixture of experts in float64 (RefExperts of kernel_reference.h).
#include <math.h>

#include <algorithm>

#include "tests/support/kernel_reference.h"

namespace pipewright {
namespace {

Values Part(const Values& all, int64_t index, int64_t size) {
  return Values(all.begin() + index * size, all.begin() + (index + 1) * size);
}

void AddTo(const Values& part, int64_t index, Values* all) {
  for (size_t element = 0; element < part.size(); ++element) {
    (*all)[index * part.size() + element] += part[element];
  }
}

Values Times(Values values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

double Product(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t index = 0; index < a.size(); ++index) sum += a[index] * b[index];
  return sum;
}

// Two matrices and an activation on one row.
struct Block {
  PwActivation activation;
  int64_t hidden, up, ffn;

  Values Forward(const Values& x, const Values& w_up,
                 const Values& w_down) const {
    const Values wide = RefLinear(x, w_up, {}, 1, hidden, up);
    return RefLinear(RefActivation(activation, wide, 1, ffn), w_down, {}, 1,
                     ffn, hidden);
  }
  // Returns the gradients of x; writes those of the weights.
  Values Backward(const Values& x, const Values& w_up, const Values& w_down,
                  const Values& dy, Values* d_up, Values* d_down) const {
    const Values wide = RefLinear(x, w_up, {}, 1, hidden, up);
    const Values active = RefActivation(activation, wide, 1, ffn);
    *d_down = RefLinearWeight(active, dy, 1, ffn, hidden);
    const Values d_wide = RefActivationBackward(
        activation, wide, RefLinearInput(dy, w_down, 1, ffn, hidden), 1, ffn);
    *d_up = RefLinearWeight(x, d_wide, 1, hidden, up);
    return RefLinearInput(d_wide, w_up, 1, hidden, up);
  }
};

Values Softmax(const Values& logits) {
  Values p = logits;
  double sum = 0;
  for (double& value : p) sum += value = exp(value);
  return Times(p, 1 / sum);
}

}  // namespace

std::vector<int32_t> RefChosen(const Values& logits, int64_t token,
                               int32_t chosen, bool balanced) {
  const auto experts = static_cast<int32_t>(logits.size());
  std::vector<int32_t> order(experts);
  for (int32_t expert = 0; expert < experts; ++expert) order[expert] = expert;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  for (int32_t slot = 0; balanced && slot < chosen; ++slot) {
    order[slot] = static_cast<int32_t>((token * chosen + slot) % experts);
  }
  order.resize(chosen);
  return order;
}

RefExpertsOutput RefExperts(const PwModel& model, int64_t tokens,
                            const Values& x, const RefExpertWeights& weights,
                            const Values* dy) {
  const int64_t hidden = model.hidden;
  const bool gated = model.style == PW_LLAMA;
  const auto block_of = [&](int64_t ffn) {
    return Block{gated ? PW_SWIGLU : PW_GELU, hidden, gated ? 2 * ffn : ffn,
                 ffn};
  };
  const Block expert = block_of(model.expert_ffn / model.tp);
  const Block shared = block_of(model.shared_ffn / model.tp);
  const int64_t own = model.experts / model.ep;
  RefExpertsOutput out;
  out.y.resize(x.size());
  out.dx.resize(x.size());
  out.gradients = weights;
  for (Values* all :
       {&out.gradients.router, &out.gradients.up, &out.gradients.down,
        &out.gradients.shared_up, &out.gradients.shared_down}) {
    std::fill(all->begin(), all->end(), 0);
  }
  for (int64_t token = 0; token < tokens; ++token) {
    const Values row = Part(x, token, hidden);
    const Values logits =
        RefLinear(row, weights.router, {}, 1, hidden, model.experts);
    const Values p = Softmax(logits);
    const std::vector<int32_t> chosen =
        RefChosen(logits, token, model.experts_per_token, model.balanced != 0);
    double sum = 0;
    for (const int32_t one : chosen) sum += p[one];
    const Values d_out = dy == nullptr ? Values() : Part(*dy, token, hidden);
    // Gradients of the chosen weights, divided by their sum.
    Values d_share(model.experts);
    for (const int32_t one : chosen) {
      const int64_t place = one % own;
      const Values up = Part(weights.up, place, expert.up * hidden);
      const Values down = Part(weights.down, place, expert.ffn * hidden);
      const Values y = expert.Forward(row, up, down);
      const double share = p[one] / sum;
      AddTo(Times(y, share), token, &out.y);
      if (dy == nullptr) continue;
      d_share[one] = Product(d_out, y);
      Values d_up;
      Values d_down;
      AddTo(expert.Backward(row, up, down, Times(d_out, share), &d_up, &d_down),
            token, &out.dx);
      AddTo(d_up, place, &out.gradients.up);
      AddTo(d_down, place, &out.gradients.down);
    }
    if (model.shared_ffn > 0) {
      AddTo(shared.Forward(row, weights.shared_up, weights.shared_down), token,
            &out.y);
    }
    if (dy == nullptr) continue;
    if (model.shared_ffn > 0) {
      Values d_up;
      Values d_down;
      AddTo(shared.Backward(row, weights.shared_up, weights.shared_down, d_out,
                            &d_up, &d_down),
            token, &out.dx);
      AddTo(d_up, 0, &out.gradients.shared_up);
      AddTo(d_down, 0, &out.gradients.shared_down);
    }
    // share_i = p_i / sum, then the softmax over all experts.
    double mean_share = 0;
    for (const int32_t one : chosen) {
      // The share first: it is 1 exactly where one is chosen.
      mean_share += d_share[one] * (p[one] / sum);
    }
    Values d_p(model.experts);
    for (const int32_t one : chosen) {
      d_p[one] = (d_share[one] - mean_share) / sum;
    }
    const double mean = Product(d_p, p);
    Values d_logits(model.experts);
    for (int32_t one = 0; one < model.experts; ++one) {
      d_logits[one] = p[one] * (d_p[one] - mean);
    }
    AddTo(RefLinearWeight(row, d_logits, 1, hidden, model.experts), 0,
          &out.gradients.router);
    AddTo(RefLinearInput(d_logits, weights.router, 1, hidden, model.experts),
          token, &out.dx);
  }
  return out;
}

}  // namespace pipewright
