// Routing: which experts, where their rows lie, what comes back.
#include <math.h>

#include <limits>

#include "kernels/random.h"
#include "tests/support/kernel_checks.h"

namespace pipewright {
namespace {

constexpr int64_t kTokens = 300;

struct RouteCase {
  int32_t experts;
  int32_t chosen;
  int32_t own;
  bool balanced;
  bool special;  // logits that are equal, infinite or not numbers
};

// Values that all types store as they are, so that every backend sees the
// same order; some are equal.
Values Logits(const RouteCase& one) {
  Values logits(kTokens * one.experts);
  for (size_t index = 0; index < logits.size(); ++index) {
    logits[index] = (pw_random_id(5, index, 61) - 30) / 8.0;
  }
  if (!one.special) return logits;
  const double infinity = std::numeric_limits<double>::infinity();
  for (int32_t expert = 0; expert < one.experts; ++expert) {
    logits[expert] = 1;                        // all equal
    logits[one.experts + expert] = -infinity;  // all alike again
  }
  logits[2 * one.experts] = NAN;
  logits[3 * one.experts + one.experts - 1] = infinity;
  return logits;
}

Values Softmax(const Values& logits) {
  Values weights = logits;
  double sum = 0;
  for (double& value : weights) sum += value = exp(value);
  for (double& value : weights) value /= sum;
  return weights;
}

template <typename T>
Values As(const std::vector<uint8_t>& bytes) {
  const T* first = reinterpret_cast<const T*>(bytes.data());
  return Values(first, first + bytes.size() / sizeof(T));
}

void RunRoute(KernelRig* rig, KernelCompare* compare, PwType type,
              const RouteCase& one) {
  const PwKernels& kernels = *rig->kernels();
  const int64_t slots = kTokens * one.chosen;
  const PwRoute route = {type,       kTokens, one.experts,
                         one.chosen, one.own, one.balanced};
  Values logits = Logits(one);
  void* logits_there = rig->Put(&logits, type);
  auto* ids = static_cast<int32_t*>(rig->Space(slots * sizeof(int32_t)));
  auto* places = static_cast<int32_t*>(rig->Space(slots * sizeof(int32_t)));
  auto* counts = static_cast<int32_t*>(rig->Space(one.own * sizeof(int32_t)));
  auto* weights = static_cast<float*>(rig->Space(slots, PW_FP32));
  rig->Ok(kernels.route_forward(rig->device(), nullptr, &route, logits_there,
                                ids, weights, places, counts),
          "route_forward");
  Values ids_want;
  Values weights_want;
  Values tokens_of(one.own);
  for (int64_t token = 0; token < kTokens; ++token) {
    const Values row(logits.begin() + token * one.experts,
                     logits.begin() + (token + 1) * one.experts);
    Values ordered = row;
    for (double& logit : ordered) {
      if (isnan(logit)) logit = -std::numeric_limits<double>::infinity();
    }
    const std::vector<int32_t> chosen =
        RefChosen(ordered, token, one.chosen, one.balanced);
    Values own;
    for (const int32_t expert : chosen) {
      ids_want.push_back(expert);
      own.push_back(row[expert]);
      tokens_of[expert % one.own] += 1;
    }
    const Values shares = Softmax(own);
    weights_want.insert(weights_want.end(), shares.begin(), shares.end());
  }
  Values next(one.own);
  for (int32_t expert = 1; expert < one.own; ++expert) {
    next[expert] = next[expert - 1] + tokens_of[expert - 1];
  }
  Values places_want;
  for (const double expert : ids_want) {
    places_want.push_back(next[static_cast<int32_t>(expert) % one.own]++);
  }
  compare->Tensor("ids", As<int32_t>(rig->Bytes(ids, slots * 4)), ids_want);
  compare->Tensor("places", As<int32_t>(rig->Bytes(places, slots * 4)),
                  places_want);
  std::vector<int64_t> there(one.own, -1);
  rig->Ok(kernels.route_counts(rig->device(), nullptr, &route, counts,
                               there.data()),
          "route_counts");
  compare->Tensor("counts", Values(there.begin(), there.end()), tokens_of);
  if (one.special) return;  // weights of infinities are no numbers
  compare->Device("weights", weights, PW_FP32, weights_want);
  Values dweights = RandomValues(slots, 6, 1);
  const float* dweights_there =
      static_cast<const float*>(rig->Put(&dweights, PW_FP32));
  void* dlogits = rig->Space(kTokens * one.experts, type);
  rig->Ok(kernels.route_backward(rig->device(), nullptr, &route, ids, weights,
                                 dweights_there, dlogits),
          "route_backward");
  Values want(kTokens * one.experts);
  for (int64_t slot = 0; slot < slots; ++slot) {
    const int64_t first = slot / one.chosen * one.chosen;
    double mean = 0;
    for (int64_t other = first; other < first + one.chosen; ++other) {
      mean += weights_want[other] * dweights[other];
    }
    want[slot / one.chosen * one.experts +
         static_cast<int64_t>(ids_want[slot])] =
        weights_want[slot] * (dweights[slot] - mean);
  }
  compare->Device("dlogits", dlogits, type, want);
}

void RunRows(KernelRig* rig, KernelCompare* compare, PwType type,
             int64_t columns) {
  constexpr int32_t kChosen = 3;
  constexpr int64_t kFew = 37;
  constexpr int64_t kSlots = kFew * kChosen;
  const PwKernels& kernels = *rig->kernels();
  const PwRoute route = {type, kFew, 8, kChosen, 8, 0};
  // Any order of the slots.
  std::vector<int32_t> places(kSlots);
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    places[slot] = static_cast<int32_t>(slot * 50 % kSlots);
  }
  const int32_t* places_there =
      static_cast<const int32_t*>(rig->PutIds(places));
  Values x = RandomValues(kFew * columns, 1, 1);
  Values rows = RandomValues(kSlots * columns, 2, 1);
  Values weights = RandomValues(kSlots, 3, 1);
  Values residual = RandomValues(kFew * columns, 4, 1);
  Values dy = RandomValues(kFew * columns, 5, 1);
  const void* x_there = rig->Put(&x, type);
  const void* rows_there = rig->Put(&rows, type);
  const float* weights_there =
      static_cast<const float*>(rig->Put(&weights, PW_FP32));
  void* residual_there = rig->Put(&residual, type);
  const void* dy_there = rig->Put(&dy, type);
  void* sent = rig->Space(kSlots * columns, type);
  void* weighted = rig->Space(kFew * columns, type);
  void* plain = rig->Space(kFew * columns, type);
  void* drows = rig->Space(kSlots * columns, type);
  float* dweights = static_cast<float*>(rig->Space(kSlots, PW_FP32));
  PwDevice* device = rig->device();
  rig->Ok(kernels.dispatch_rows(device, nullptr, &route, columns, x_there,
                                places_there, sent),
          "dispatch_rows");
  rig->Ok(kernels.combine_rows(device, nullptr, &route, columns, rows_there,
                               places_there, weights_there, residual_there,
                               weighted),
          "combine_rows");
  rig->Ok(kernels.combine_rows(device, nullptr, &route, columns, rows_there,
                               places_there, nullptr, nullptr, plain),
          "combine_rows without weights");
  // In place.
  rig->Ok(kernels.combine_rows(device, nullptr, &route, columns, rows_there,
                               places_there, nullptr, residual_there,
                               residual_there),
          "combine_rows in place");
  rig->Ok(kernels.combine_rows_backward(device, nullptr, &route, columns,
                                        dy_there, rows_there, places_there,
                                        weights_there, drows, dweights),
          "combine_rows_backward");
  Values sent_want(kSlots * columns);
  Values weighted_want = residual;
  Values plain_want(kFew * columns);
  Values in_place_want = residual;
  Values drows_want(kSlots * columns);
  Values dweights_want(kSlots);
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t own = slot / kChosen * columns + column;
      const int64_t row = places[slot] * columns + column;
      sent_want[row] = x[own];
      weighted_want[own] += weights[slot] * rows[row];
      plain_want[own] += rows[row];
      in_place_want[own] += rows[row];
      drows_want[row] = weights[slot] * dy[own];
      dweights_want[slot] += dy[own] * rows[row];
    }
  }
  compare->Device("sent", sent, type, sent_want);
  compare->Device("weighted", weighted, type, weighted_want);
  compare->Device("plain", plain, type, plain_want);
  compare->Device("in place", residual_there, type, in_place_want);
  compare->Device("drows", drows, type, drows_want);
  compare->Device("dweights", dweights, PW_FP32, dweights_want);
}

}  // namespace

std::vector<KernelCheck> ExpertChecks() {
  std::vector<KernelCheck> checks;
  for (const RouteCase& one : {RouteCase{8, 2, 8, false, false},
                               {8, 2, 8, true, false},
                               {8, 2, 8, false, true},
                               {5, 5, 5, false, false},
                               {1, 1, 1, false, false},
                               {128, 8, 16, false, false},
                               {60, 4, 20, true, false},
                               {40, 32, 40, false, false},
                               {256, 8, 256, false, true}}) {
    std::string name = "route" + ShapeText({one.experts, one.chosen, one.own});
    if (one.balanced) name += " balanced";
    if (one.special) name += " special";
    checks.push_back(MakeKernelCheck(
        name, false, false,
        [=](KernelRig* rig, KernelCompare* compare, PwType type) {
          RunRoute(rig, compare, type, one);
        }));
  }
  // The last ones: two and four vectors of a row for each thread, and more.
  for (const int64_t columns : {1, 37, 64, 1000, 2056, 4104, 8200}) {
    checks.push_back(MakeKernelCheck(
        "expert rows" + ShapeText({columns}), false, false,
        [=](KernelRig* rig, KernelCompare* compare, PwType type) {
          RunRows(rig, compare, type, columns);
        }));
  }
  return checks;
}

}  // namespace pipewright
