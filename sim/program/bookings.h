// Copies of the ranks behind one switch that have their times, what they make
// of the peaks, and when the switch copies one way only. Internal to
// plans of copies.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/program/rank_plan.h"

namespace pipewright {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// An activation that may go.
struct CopyCandidate {
  int rank = 0;  // rank on the switch
  int32_t activation = 0;
};

struct Bookings {
  std::vector<std::vector<PlannedMove>> moves;  // [rank]
  std::vector<double> peaks;                    // [rank]
  double highest = kNever;
  double sum = kNever;
  int64_t times = 0;

  bool LowerThan(const Bookings& other) const;
};

// With a `best`, peaks of bookings that are not lower need not be known.
Bookings BookingsOf(const std::vector<RankPlan>& ranks,
                    const std::vector<CopyCandidate>& chosen,
                    const std::vector<PlannedMove>& moves,
                    const Bookings* best);

// Activations that can still go, out of a shrinking set.
class AwaySet {
 public:
  // Nothing is in it.
  explicit AwaySet(const std::vector<RankPlan>& ranks);
  void Add(const CopyCandidate& candidate) {
    away_[candidate.rank][candidate.activation] = true;
  }
  void Remove(const CopyCandidate& candidate) {
    away_[candidate.rank][candidate.activation] = false;
  }
  // Whenever copies of them may run, the bookings are not lower than `best`.
  bool CannotBeLowerThan(const Bookings& best) const;

 private:
  const std::vector<RankPlan>& ranks_;
  std::vector<std::vector<bool>> away_;  // [rank][activation]
};

// When nothing is copied the other way: before the first L of the switch, and
// from the end of its last O on. A plan that is made for such times keeps to
// them: no L comes before `first_in_s`, no O ends after `last_out_s`.
struct OneWay {
  double first_in_s = -kNever;  // not known yet: both directions are busy
  double last_out_s = kNever;

  double OutSeconds(const PlannedActivation& activation, double out_s) const {
    return out_s + activation.out_alone_s <= first_in_s ? activation.out_alone_s
                                                        : activation.out_s;
  }
  double InSeconds(const PlannedActivation& activation, double end_s) const {
    return end_s - activation.in_alone_s >= last_out_s ? activation.in_alone_s
                                                       : activation.in_s;
  }
  bool Keeps(const RankPlan& rank, const PlannedMove& move) const {
    return move.away_s <= last_out_s && rank.IssueOf(move) >= first_in_s;
  }
  friend bool operator==(const OneWay&, const OneWay&) = default;
};

}  // namespace pipewright
