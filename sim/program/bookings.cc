#include "sim/program/bookings.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace pipewright {
namespace {

// Peaks this close are the same.
constexpr double kSamePeak = 1e-9;

}  // namespace

bool Bookings::LowerThan(const Bookings& other) const {
  if (std::abs(highest - other.highest) > kSamePeak * other.highest) {
    return highest < other.highest;
  }
  if (std::abs(sum - other.sum) > kSamePeak * other.sum) {
    return sum < other.sum;
  }
  return times < other.times;
}

Bookings BookingsOf(const std::vector<RankPlan>& ranks,
                    const std::vector<CopyCandidate>& chosen,
                    const std::vector<PlannedMove>& moves,
                    const Bookings* best) {
  Bookings booked;
  booked.highest = booked.sum = 0;
  booked.moves.resize(ranks.size());
  for (size_t index = 0; index < chosen.size(); ++index) {
    booked.moves[chosen[index].rank].push_back(moves[index]);
  }
  const double most =
      best == nullptr ? kNever : best->highest * (1 + 2 * kSamePeak);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const PlannedPeak peak = ranks[rank].PeakWith(booked.moves[rank], most);
    booked.peaks.push_back(peak.peak);
    booked.highest = std::max(booked.highest, peak.peak);
    booked.sum += peak.peak;
    booked.times += peak.times;
    if (peak.peak > most) break;
  }
  return booked;
}

AwaySet::AwaySet(const std::vector<RankPlan>& ranks) : ranks_(ranks) {
  for (const RankPlan& rank : ranks) {
    away_.emplace_back(rank.activations().size());
  }
}

bool AwaySet::CannotBeLowerThan(const Bookings& best) const {
  // Sums are rounded in another order than those of PeakWith.
  constexpr double kAbove = 1 + 4 * kSamePeak;
  double highest = 0;
  double sum = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const double peak = ranks_[rank].LeastPeak(away_[rank]);
    if (peak > best.highest * kAbove) return true;
    highest = std::max(highest, peak);
    sum += peak;
  }
  return highest >= best.highest * (1 - kSamePeak / 2) &&
         sum > best.sum * kAbove;
}

}  // namespace pipewright
