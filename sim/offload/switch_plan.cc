#include "sim/offload/switch_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "sim/offload/copy_lane.h"

namespace pipewright {
namespace {

// Peaks this close are the same.
constexpr double kSamePeak = 1e-9;

// Bookings that one switch may try: short orders are searched, long ones are
// booked a few times.
constexpr int64_t kBookings = 200'000;
constexpr int64_t kMostTries = 2'000;

struct Candidate {
  int rank = 0;  // of the switch
  int32_t activation = 0;
};

struct Booked {
  std::vector<std::vector<PlannedCopy>> copies;  // [rank]
  std::vector<int64_t> offloaded;                // [rank]
  std::vector<double> peaks;                     // [rank]
  double highest = 0;
  double sum = 0;
  int64_t times = 0;

  bool LowerThan(const Booked& other) const {
    if (std::abs(highest - other.highest) > kSamePeak * other.highest) {
      return highest < other.highest;
    }
    if (std::abs(sum - other.sum) > kSamePeak * other.sum) {
      return sum < other.sum;
    }
    return times < other.times;
  }
};

// First come, first served; what does not fit is left out.
Booked Book(const std::vector<RankPlan>& ranks,
            const std::vector<Candidate>& order) {
  CopyLane out;
  CopyLane in;
  Booked booked;
  booked.copies.resize(ranks.size());
  booked.offloaded.resize(ranks.size());
  for (const Candidate& candidate : order) {
    booked.offloaded[candidate.rank] +=
        ranks[candidate.rank].Book(candidate.activation, &out, &in,
                                   &booked.copies[candidate.rank])
            ? 1
            : 0;
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RankPlan::Sort(&booked.copies[rank]);
    const PlannedPeak peak = ranks[rank].PeakWith(booked.copies[rank]);
    booked.peaks.push_back(peak.peak);
    booked.highest = std::max(booked.highest, peak.peak);
    booked.sum += peak.peak;
    booked.times += peak.times;
  }
  return booked;
}

class Search {
 public:
  Search(const std::vector<RankPlan>& ranks, std::vector<Candidate> order)
      : ranks_(ranks), order_(std::move(order)) {
    best_ = Book(ranks_, order_);
    tries_ = std::min(kMostTries,
                      kBookings / std::max<int64_t>(1, std::ssize(order_)));
  }

  Booked Run() && {
    // Other ways to begin: the soonest needed, the first that is there.
    TrySorted([](const PlannedActivation& each) { return each.needed_s; });
    TrySorted([](const PlannedActivation& each) { return each.ready_s; });
    // One activation goes first, as long as that helps.
    for (bool improved = true; improved && tries_ > 0;) {
      improved = false;
      for (size_t index = 1; index < order_.size() && tries_ > 0; ++index) {
        std::vector<Candidate> other = order_;
        const auto chosen = other.begin() + static_cast<int64_t>(index);
        std::rotate(other.begin(), chosen, chosen + 1);
        improved |= Try(std::move(other));
      }
    }
    return std::move(best_);
  }

 private:
  template <typename Key>
  void TrySorted(const Key& key) {
    std::vector<Candidate> other = order_;
    const auto of = [&](const Candidate& candidate) {
      return key(ranks_[candidate.rank].activations()[candidate.activation]);
    };
    std::stable_sort(other.begin(), other.end(),
                     [&](const Candidate& one, const Candidate& two) {
                       return of(one) < of(two);
                     });
    Try(std::move(other));
  }

  bool Try(std::vector<Candidate> other) {
    --tries_;
    Booked booked = Book(ranks_, other);
    if (!booked.LowerThan(best_)) return false;
    best_ = std::move(booked);
    order_ = std::move(other);
    return true;
  }

  const std::vector<RankPlan>& ranks_;
  std::vector<Candidate> order_;
  Booked best_;
  int64_t tries_ = 0;
};

}  // namespace

void PlanSwitch(const std::vector<RankPlan>& ranks, const OffloadChoice& choice,
                std::vector<RankOrder>* orders, std::vector<RankOffload>* out) {
  std::vector<Candidate> candidates;
  const Booked none = Book(ranks, candidates);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<int32_t> own = ranks[rank].Candidates(choice);
    out->push_back({.activations = std::ssize(ranks[rank].activations()),
                    .candidates = std::ssize(own),
                    .peak_before = none.peaks[rank]});
    for (const int32_t activation : own) {
      candidates.push_back({static_cast<int>(rank), activation});
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [&](const Candidate& one, const Candidate& other) {
        return ranks[one.rank].activations()[one.activation].lifespan_s() >
               ranks[other.rank].activations()[other.activation].lifespan_s();
      });
  Booked best = Search(ranks, std::move(candidates)).Run();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    // Copies that do not lower the peak are left out.
    if (best.peaks[rank] >= none.peaks[rank]) {
      best.copies[rank].clear();
      best.offloaded[rank] = 0;
      best.peaks[rank] = none.peaks[rank];
    }
    orders->push_back(ranks[rank].OrderWith(best.copies[rank]));
    (*out)[rank].offloaded = best.offloaded[rank];
    (*out)[rank].peak_after = best.peaks[rank];
  }
}

}  // namespace pipewright
