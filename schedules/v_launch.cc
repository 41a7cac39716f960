#include "schedules/v_launch.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

namespace pipewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Sums of durations that should be equal differ by rounding only.
constexpr double kRounding = 1e-9;
constexpr double kChunks = 2;
constexpr int kSlotted = 4;  // kinds with a slot: F.0, F.1, B.1, B.0

// Launches are two slots times n apart, n in steps of 1/kParts.
constexpr int kParts = 48;
// Tried n: from this part of the least that the bound allows, since durations
// below a slot and W in their way make the period differ from 2n slots, up to
// that of V-Min.
constexpr double kFewest = 0.75;
constexpr double kMost = 3;
// W that may end behind the arrival of the next pass, by this part of them.
constexpr double kLate[] = {0.5, 1};
constexpr int64_t kMinPatterns = 1;
// If passes are many, the first few n that keep the limit are tried: with more
// memory left over the period only grows.
constexpr int kPatience = 4;

class Launcher {
 public:
  Launcher(int pp, int microbatches, const VLimit& limit,
           const PlanCosts& costs)
      : pp_(pp),
        microbatches_(microbatches),
        limit_(limit),
        held_(costs.held_until_weight),
        forward_(costs.forward / kChunks),
        input_(costs.backward_input / kChunks),
        weight_(costs.backward_weight / kChunks),
        hop_(costs.hop),
        rounding_(kRounding * costs.work()),
        orders_(pp, microbatches),
        launches_(microbatches),
        ends_(int64_t{kSlotted} * pp * microbatches),
        ranks_(pp) {}

  // The longest of the ranks' spans; infinite when a rank would go over the
  // limit. `late`: a W starts where at most that part of it would end behind
  // the arrival of the next pass.
  double Try(int parts, double late) {
    late_ = late;
    for (int64_t index = 0; index < microbatches_; ++index) {
      launches_[index] = static_cast<int>(2 * (index * parts / kParts));
    }
    for (int rank = 0; rank < pp_; ++rank) {
      ranks_[rank] = {.slots = {rank, 2 * pp_ - 1 - rank, 2 * pp_ + rank,
                                4 * pp_ - 1 - rank}};
    }
    bool up = false;
    for (bool progress = true; progress;) {
      progress = false;
      up = !up;
      for (int step = 0; step < pp_; ++step) {
        const int rank = up ? step : pp_ - 1 - step;
        const int before = ranks_[rank].position;
        if (!Advance(rank)) return kInfinity;
        progress |= ranks_[rank].position > before;
      }
    }
    double span = 0;
    for (const Rank& state : ranks_) {
      // Two passes met in a slot and wait for each other.
      if (state.position < orders_.length()) return kInfinity;
      span = std::max(span, state.clock - state.first);
    }
    return span;
  }

  const VOrders& orders() const { return orders_; }

 private:
  struct Rank {
    std::array<int, kSlotted> slots;  // slots of microbatch 0
    std::array<int, kSlotted> counts = {};
    int weights = 0;   // done, of both chunks
    int position = 0;  // in its order
    int unpaired = 0;  // no B before it lacks a W
    double clock = 0;
    double first = 0;  // start of the first pass

    bool pending() const { return counts[kB1] + counts[kB0] > weights; }
  };

  double* Ends(int rank, int kind) {
    return ends_.data() + (int64_t{rank} * kSlotted + kind) * microbatches_;
  }

  // The kind whose next pass is in the first slot; kSlotted when all is done.
  // Where two meet, the one further on its way.
  int Next(const Rank& state) const {
    int next = kSlotted;
    int first = std::numeric_limits<int>::max();
    for (int kind = kSlotted - 1; kind >= 0; --kind) {
      const int index = state.counts[kind];
      if (index == microbatches_) continue;
      const int slot = launches_[index] + state.slots[kind];
      if (slot >= first) continue;
      first = slot;
      next = kind;
    }
    return next;
  }

  bool FitsForward(const Rank& state) const {
    const int forwards = state.counts[kF0] + state.counts[kF1] + 1;
    const int inputs = state.counts[kB1] + state.counts[kB0];
    const double held = forwards - (1 - held_) * inputs - held_ * state.weights;
    return forwards - state.weights <= limit_.chunks &&
           held / kChunks <= limit_.activations + kRounding;
  }

  // The W of the first B that has none yet.
  void RunWeight(int rank) {
    Rank& state = ranks_[rank];
    uint8_t* const order = orders_.rank(rank);
    while (order[state.unpaired] != kB1 && order[state.unpaired] != kB0) {
      ++state.unpaired;
    }
    order[state.position++] = order[state.unpaired++] == kB1 ? kW1 : kW0;
    ++state.weights;
    state.clock += weight_;
  }

  // Runs `rank` until an input is missing. False when an F does not fit.
  bool Advance(int rank) {
    Rank& state = ranks_[rank];
    while (state.position < orders_.length()) {
      const int kind = Next(state);
      if (kind == kSlotted) {
        RunWeight(rank);
        continue;
      }
      int& index = state.counts[kind];
      const bool up = kind == kF0 || kind == kB1;
      const int producer = up ? rank - 1 : rank + 1;
      double arrival = 0;
      if (producer >= 0 && producer < pp_) {
        if (ranks_[producer].counts[kind] <= index) return true;
        arrival = Ends(producer, kind)[index] + hop_;
      }
      while (state.pending() &&
             state.clock + (1 - late_) * weight_ <= arrival + rounding_) {
        RunWeight(rank);
      }
      while (kind <= kF1 && !FitsForward(state)) {
        if (!state.pending()) return false;
        RunWeight(rank);
      }
      const double start = std::max(state.clock, arrival);
      if (state.position == 0) state.first = start;
      state.clock = start + (kind <= kF1 ? forward_ : input_);
      Ends(rank, kind)[index++] = state.clock;
      orders_.rank(rank)[state.position++] = static_cast<uint8_t>(kind);
    }
    return true;
  }

  const int pp_;
  const int microbatches_;
  const VLimit limit_;
  const double held_;
  const double forward_;
  const double input_;
  const double weight_;
  const double hop_;
  const double rounding_;
  double late_ = 0;
  VOrders orders_;
  std::vector<int> launches_;  // slots
  std::vector<double> ends_;   // [rank][kind][microbatch]
  std::vector<Rank> ranks_;
};

}  // namespace

std::optional<VPlan> PlanVLaunches(int pp, int microbatches,
                                   const VLimit& limit, const PlanCosts& costs,
                                   int64_t max_passes) {
  Launcher launcher(pp, microbatches, limit, costs);
  std::optional<VPlan> best;
  const auto attempt = [&](int parts, double late) {
    const double span = launcher.Try(parts, late);
    if (span < (best ? best->span : kInfinity)) {
      best = VPlan{.orders = launcher.orders(), .span = span};
    }
    return span;
  };
  const double pair =
      std::max(costs.forward, costs.backward_input) + 2 * costs.hop;
  const double bound = LeastVPeriod(pp, limit.chunks, costs);
  const double least = bound < kMost * pair ? bound / pair : kMost;
  const int first = static_cast<int>(std::max(kFewest * least, 1.0) * kParts);
  const int64_t passes = int64_t{kVKinds} * pp * microbatches;
  const int64_t count = max_passes / passes;
  std::vector<std::pair<double, int>> kept;  // span, parts
  int stale = 0;                             // parts tried since the best
  for (int parts = first; parts <= kMost * kParts; ++parts) {
    if (stale == kPatience && static_cast<int64_t>(kept.size()) > count) break;
    const double before = best ? best->span : kInfinity;
    const double span = attempt(parts, 0);
    if (span == kInfinity) continue;
    kept.emplace_back(span, parts);
    stale = span < before ? 0 : std::min(stale + 1, kPatience);
  }
  std::sort(kept.begin(), kept.end());
  kept.resize(std::min<size_t>(kept.size(), std::max(kMinPatterns, count / 2)));
  for (const auto& [span, parts] : kept) {
    for (const double late : kLate) attempt(parts, late);
  }
  return best;
}

double LeastVPeriod(int pp, int chunks, const PlanCosts& costs) {
  const double passes =
      (2 * pp + 1) * (costs.forward + costs.backward_input) / kChunks +
      costs.backward_weight;
  const double held = passes + 4 * (pp - 1) * costs.hop;
  return std::max(costs.work(), held / chunks);
}

}  // namespace pipewright
