#include "sim/model/balanced_layout.h"

#include <algorithm>
#include <utility>

#include "sim/base/check.h"

namespace pipewright {

// The balanced split: the smallest limit that some split keeps, found by
// bisection with a greedy test, then the most even split within that limit.

namespace {

// Halvings: a double has no more digits.
constexpr int kBisections = 60;
// Sums of the same weights in another order differ in the last digits.
constexpr double kRounding = 1e-12;

class Balancer {
 public:
  Balancer(const std::vector<int>& rank_of_stage,
           const std::vector<double>& before_layer,
           const std::vector<double>& fixed_of_stage,
           const std::vector<double>& slowness)
      : rank_of_stage_(rank_of_stage),
        before_layer_(before_layer),
        fixed_(fixed_of_stage),
        slowness_(slowness),
        rounding_(kRounding * before_layer.back()) {
    int ranks = 0;
    for (const int rank : rank_of_stage) ranks = std::max(ranks, rank + 1);
    chunks_left_.resize(ranks);
    room_.resize(ranks);
  }

  std::vector<int64_t> Split() {
    double low = 0;
    double high = before_layer_.back();
    for (const double fixed : fixed_) high += fixed;
    high *= *std::max_element(slowness_.begin(), slowness_.end());
    for (int step = 0; step < kBisections; ++step) {
      const double middle = (low + high) / 2;
      (Fits(middle) ? high : low) = middle;
    }
    return EvenWithin(high);
  }

 private:
  int64_t layers() const {
    return static_cast<int64_t>(before_layer_.size()) - 1;
  }
  int stages() const { return static_cast<int>(rank_of_stage_.size()); }

  void Reset(double limit) {
    std::fill(chunks_left_.begin(), chunks_left_.end(), 0);
    for (size_t rank = 0; rank < room_.size(); ++rank) {
      room_[rank] = limit / slowness_[rank];
    }
    for (int stage = 0; stage < stages(); ++stage) {
      ++chunks_left_[rank_of_stage_[stage]];
      room_[rank_of_stage_[stage]] -= fixed_[stage];
    }
  }

  // Layers from `first` on that weigh at most `room`.
  int64_t Within(int64_t first, double room) const {
    if (room < 0) return 0;
    const double limit = before_layer_[first] + room + rounding_;
    const auto past = std::upper_bound(before_layer_.begin() + first,
                                       before_layer_.end(), limit);
    return past - before_layer_.begin() - 1 - first;
  }

  double Weight(int64_t first, int64_t count) const {
    return before_layer_[first + count] - before_layer_[first];
  }

  // As many layers as come nearest to `share`.
  int64_t Nearest(int64_t first, double share) const {
    const int64_t count = Within(first, share);
    if (first + count == layers()) return count;
    const double short_of = share - Weight(first, count);
    const double beyond = Weight(first, count + 1) - share;
    return beyond < short_of ? count + 1 : count;
  }

  // Can stages from `stage` on take the layers from `first` on? Each takes
  // its share of what its rank has room for.
  bool CanFinish(int stage, int64_t first) const {
    std::vector<double> room = room_;
    std::vector<int> chunks = chunks_left_;
    for (; stage < stages() && first < layers(); ++stage) {
      const int rank = rank_of_stage_[stage];
      const int64_t count = Within(first, room[rank] / chunks[rank]--);
      room[rank] -= Weight(first, count);
      first += count;
    }
    return first == layers();
  }

  bool Fits(double limit) {
    Reset(limit);
    for (const double room : room_) {
      if (room < 0) return false;
    }
    return CanFinish(0, 0);
  }

  std::vector<int64_t> EvenWithin(double limit) {
    Reset(limit);
    std::vector<int64_t> counts;
    int64_t first = 0;
    double fixed_left = 0;
    for (const double fixed : fixed_) fixed_left += fixed;
    double speed_left = 0;  // of the stages that are left
    for (const int rank : rank_of_stage_) speed_left += 1 / slowness_[rank];
    for (int stage = 0; stage < stages(); ++stage) {
      const int rank = rank_of_stage_[stage];
      const double left = before_layer_.back() - before_layer_[first];
      const double speed = 1 / slowness_[rank];
      const double share =
          (left + fixed_left) * speed / speed_left - fixed_[stage];
      speed_left -= speed;
      fixed_left -= fixed_[stage];
      --chunks_left_[rank];
      const double room = room_[rank];
      const int64_t most = Within(first, room);
      const auto works = [&](int64_t count) {
        if (count < 0 || count > most) return false;
        room_[rank] = room - Weight(first, count);
        return CanFinish(stage + 1, first + count);
      };
      // The greedy count works, so the search ends.
      const int64_t wanted = std::min(Nearest(first, share), most);
      int64_t off = 0;
      while (!works(wanted - off) && !works(wanted + off)) {
        PW_CHECK(off <= layers());
        ++off;
      }
      const int64_t count = works(wanted - off) ? wanted - off : wanted + off;
      room_[rank] = room - Weight(first, count);
      counts.push_back(count);
      first += count;
    }
    PW_CHECK(first == layers());
    return counts;
  }

  const std::vector<int>& rank_of_stage_;
  const std::vector<double>& before_layer_;  // [layer]: sum before it
  const std::vector<double>& fixed_;         // [stage]: what stays there
  const std::vector<double>& slowness_;      // [rank]
  double rounding_;
  std::vector<int> chunks_left_;  // [rank]
  std::vector<double> room_;      // [rank]
};

}  // namespace

StageLayout BalancedLayout(
    const ModelSpec& model, const TrainingSpec& training,
    const std::vector<int>& rank_of_stage,
    const std::function<double(BlockKind, int64_t layer)>& weight,
    std::vector<double> slowness) {
  const int stages = static_cast<int>(rank_of_stage.size());
  PW_CHECK(stages > 0);
  if (slowness.empty()) slowness.assign(stages, 1);
  std::vector<double> before_layer = {0};
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const BlockKind kind = model.IsExpertLayer(layer) ? BlockKind::kExpertLayer
                                                      : BlockKind::kDenseLayer;
    before_layer.push_back(before_layer.back() + weight(kind, layer));
  }
  std::vector<double> fixed(stages, 0);
  if (model.mtp_layers > 0) {
    fixed.back() += static_cast<double>(model.mtp_layers) *
                    weight(BlockKind::kMtpLayer, model.layers);
  }
  // A spread vocabulary weighs the same on every rank.
  if (training.vocabulary == VocabularyPlacement::kEnds) {
    fixed.front() += weight(BlockKind::kEmbedding, 0);
    fixed.back() += weight(BlockKind::kHead, 0);
  }
  absl::StatusOr<StageLayout> layout = LayoutFromCounts(
      model, training,
      Balancer(rank_of_stage, before_layer, fixed, slowness).Split());
  PW_CHECK(layout.ok());
  return *std::move(layout);
}

StageLayout BalancedLayout(
    const ModelSpec& model, const TrainingSpec& training,
    const std::vector<int>& rank_of_stage,
    const std::function<double(BlockKind, int64_t layer)>& weight) {
  return BalancedLayout(model, training, rank_of_stage, weight, {});
}

}  // namespace pipewright
