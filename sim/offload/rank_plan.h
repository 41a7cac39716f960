// The activations of one rank, the times that its passes have, and what copies
// of some of them make of its order. Internal to offload/; what it is for says
// activation_plan.h.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/offload/activation_plan.h"
#include "sim/offload/pass_times.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// What a forward leaves, and when it can be away.
struct PlannedActivation {
  Pass forward;
  double ready_s = 0;   // the forward has ended
  double needed_s = 0;  // the first pass that needs it begins
  double out_s = 0;     // its O takes
  double in_s = 0;      // its L takes
  double lifespan_s() const { return needed_s - ready_s; }
};

// An O, FREE or L in front of the entry at `position`.
struct PlannedCopy {
  int64_t position = 0;
  double time_s = 0;
  Pass pass;
};

struct PlannedPeak {
  double peak = 0;
  int64_t times = 0;  // how often it is reached
};

class RankPlan {
 public:
  // All must outlive this.
  RankPlan(const Schedule& schedule, int rank, const PassTimes& times,
           const OffloadCosts& costs);

  // In the order of their forwards.
  const std::vector<PlannedActivation>& activations() const {
    return activations_;
  }
  // Indices of those that the choice names, the longest-lived first.
  std::vector<int32_t> Candidates(const OffloadChoice& choice) const;

  // Does any pass run while the activation is away, between an O that ends at
  // `away_s` and an L that begins at `back_s`?
  bool Helps(double away_s, double back_s) const;
  // The copies of an activation whose O begins at `out_s`, its L at `in_s`.
  void Place(int32_t activation, double out_s, double in_s,
             std::vector<PlannedCopy>* copies) const;
  // Puts copies in the order of the rank.
  static void Sort(std::vector<PlannedCopy>* copies);
  // Of sorted copies.
  PlannedPeak PeakWith(const std::vector<PlannedCopy>& copies) const;
  RankOrder OrderWith(const std::vector<PlannedCopy>& copies) const;

 private:
  double MovedOf(Pass pass) const;  // where costs say what copies take
  // The first entry that begins, or ends, at `time_s` or later.
  int64_t FirstStart(double time_s) const;
  int64_t FirstEnd(double time_s) const;

  const Schedule& schedule_;
  const int rank_;
  const RankOrder& order_;
  const PassTimes& times_;
  const OffloadCosts& costs_;
  std::vector<PlannedActivation> activations_;
};

}  // namespace pipewright
