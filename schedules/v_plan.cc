#include "schedules/v_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "schedules/v_blocks.h"
#include "schedules/v_build.h"

namespace pipewright {
namespace {

constexpr int kSmallRanks = 8;
constexpr int kChunksOfRank = 2;  // chunks of a microbatch on a rank
constexpr int kMaxSmallMicrobatches = 4 * kSmallRanks;
constexpr int64_t kMinBlocks = 4;
// Turns of a family are this many places apart in the order of trial.
constexpr int kTurnStride = 3;

// All turns of one row, near and far; far is 0 where no rank is far.
using Family = std::tuple<std::array<int, 3>, int, int>;

Family FamilyOf(const VBlock& block, int pp) {
  return {block.row, block.near, block.turn < pp - 1 ? block.far : 0};
}

struct Candidate {
  VBlock block;
  int peak;
};

class Planner {
 public:
  Planner(int pp, int microbatches, int limit, const PlanCosts& costs)
      : pp_(pp),
        microbatches_(microbatches),
        limit_(std::min(limit, 2 * pp)),
        costs_(costs),
        builder_(pp, microbatches),
        replay_(pp, microbatches) {}

  // Those that Build does not refuse at first sight.
  std::vector<Candidate> Candidates() {
    const int most = microbatches_ < 2 * pp_ ? 2 * pp_ : limit_;
    std::vector<Candidate> candidates;
    for (const VBlock& block : AllVBlocks(pp_)) {
      PlaceVBlock(block, pp_, &slots_);
      const int peak = VBlockPeak(slots_);
      if (peak <= most) candidates.push_back({block, peak});
    }
    return candidates;
  }

  // Infinite when the block makes no schedule.
  double Try(const Candidate& candidate) {
    PlaceVBlock(candidate.block, pp_, &slots_);
    if (!builder_.Build(slots_, candidate.peak, limit_)) {
      return std::numeric_limits<double>::infinity();
    }
    return VSpan(builder_.orders(), costs_, &replay_);
  }
  const VOrders& orders() const { return builder_.orders(); }

  std::optional<VPlan> Best(const std::vector<Candidate>& candidates) {
    std::optional<VPlan> best;
    double least = std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : candidates) {
      const double span = Try(candidate);
      if (span >= least) continue;
      least = span;
      best = VPlan{.orders = orders(), .span = span};
      // No order is faster than one without bubble.
      if (least <= microbatches_ * costs_.work()) break;
    }
    return best;
  }

 private:
  int pp_;
  int microbatches_;
  int limit_;
  PlanCosts costs_;
  VBuilder builder_;
  VReplay<double> replay_;
  VBlockSlots slots_;
};

// Families by their best span in a like pipeline of few ranks.
std::map<Family, double> SmallSpans(int pp, int microbatches, int limit,
                                    const PlanCosts& costs) {
  const auto scaled = [&](int value) {
    return (value * kSmallRanks + pp - 1) / pp;
  };
  const int small_microbatches =
      std::min(scaled(microbatches), kMaxSmallMicrobatches);
  // Peaks grow in proportion to the ranks but for one microbatch (those of
  // V-Min, V-Half and V-ZB, section 4 of the source); rounding may still leave
  // no block.
  std::map<Family, double> spans;
  for (int small_limit = scaled(limit - kChunksOfRank) + kChunksOfRank;
       spans.empty() && small_limit <= 2 * kSmallRanks + kChunksOfRank;
       ++small_limit) {
    Planner planner(kSmallRanks, small_microbatches, small_limit, costs);
    for (const Candidate& candidate : planner.Candidates()) {
      const double span = planner.Try(candidate);
      if (span == std::numeric_limits<double>::infinity()) continue;
      const auto [found, inserted] =
          spans.emplace(FamilyOf(candidate.block, kSmallRanks), span);
      if (!inserted) found->second = std::min(found->second, span);
    }
  }
  return spans;
}

// The `count` most promising: of good families, and near the limit.
std::vector<Candidate> Promising(int pp, const std::map<Family, double>& spans,
                                 std::vector<Candidate> candidates,
                                 size_t count) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return std::tie(a.peak, a.block.turn) >
                            std::tie(b.peak, b.block.turn);
                   });
  std::vector<std::pair<double, Family>> families;
  for (const auto& [family, span] : spans) families.emplace_back(span, family);
  std::sort(families.begin(), families.end());
  std::map<Family, int> places;
  for (const auto& [span, family] : families) {
    places.emplace(family, static_cast<int>(places.size()));
  }
  std::vector<std::pair<int, size_t>> order;  // place, index
  for (size_t index = 0; index < candidates.size(); ++index) {
    int& place = places
                     .emplace(FamilyOf(candidates[index].block, pp),
                              static_cast<int>(families.size()))
                     .first->second;
    order.emplace_back(place, index);
    place += kTurnStride;
  }
  std::sort(order.begin(), order.end());
  std::vector<Candidate> promising;
  for (const auto& [place, index] : order) {
    if (promising.size() == count) break;
    promising.push_back(candidates[index]);
  }
  return promising;
}

}  // namespace

std::optional<VPlan> PlanV(int pp, int microbatches, int limit,
                           const PlanCosts& costs, int64_t max_passes) {
  Planner planner(pp, microbatches, limit, costs);
  std::vector<Candidate> candidates = planner.Candidates();
  const int64_t passes = int64_t{kVKinds} * pp * microbatches;
  const int64_t count = std::max(kMinBlocks, max_passes / passes);
  if (pp <= kSmallRanks || static_cast<int64_t>(candidates.size()) <= count) {
    return planner.Best(candidates);
  }
  return planner.Best(Promising(pp, SmallSpans(pp, microbatches, limit, costs),
                                std::move(candidates),
                                static_cast<size_t>(count)));
}

int SmallestVLimit(int pp, int microbatches) {
  VBuilder builder(pp, microbatches);
  VBlockSlots slots;
  int smallest = 2 * pp;
  for (const VBlock& block : AllVBlocks(pp)) {
    PlaceVBlock(block, pp, &slots);
    // Only a smaller peak is of interest.
    if (builder.Build(slots, VBlockPeak(slots), smallest - 1)) {
      smallest = builder.peak();
    }
  }
  return smallest;
}

}  // namespace pipewright
