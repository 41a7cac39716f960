// The activations of one rank, the times that its passes have, and what copies
// of some of them make of its order. Internal to plans of copies;
// activation_plan.h says what it is for.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/activation_plan.h"
#include "sim/program/pass_times.h"
#include "sim/program/time_index.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// What a forward leaves, and when it can be away.
struct PlannedActivation {
  Pass forward;
  double forward_s = 0;   // the forward takes
  double ready_s = 0;     // the forward has ended
  double needed_s = 0;    // the first pass that needs it begins
  int64_t needed_at = 0;  // the position of that pass, or of its block
  int64_t behind = 0;     // the position behind the forward, or its block
  double out_s = 0;       // its O takes
  double in_s = 0;        // its L takes
  // The same while nothing is copied the other way.
  double out_alone_s = 0;
  double in_alone_s = 0;
  double lifespan_s() const { return needed_s - ready_s; }
};

// When the copies of an activation run, and in front of which entries they
// stand.
struct PlannedMove {
  int32_t activation = 0;
  double out_s = 0;
  double away_s = 0;  // its O has ended
  double in_s = 0;
  int64_t out = 0;
  int64_t free = 0;
  int64_t in = 0;
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
  RankPlan(const Schedule& schedule, int rank, const RankPassTimes& times,
           const OffloadCosts& costs);

  // In the order of their forwards.
  const std::vector<PlannedActivation>& activations() const {
    return activations_;
  }
  // Indices of those that the choice names, the longest-lived first.
  std::vector<int32_t> Candidates(const OffloadChoice& choice) const;

  // Its O is from `out_s` to `away_s`, its L begins at `in_s`.
  PlannedMove MoveOf(int32_t activation, double out_s, double away_s,
                     double in_s) const;
  // When the compute stream comes to the L: it may begin before it was planned.
  double IssueOf(const PlannedMove& move) const {
    return move.in == 0 ? 0 : times_.end_s[move.in - 1];
  }
  // Does any pass run while the activation is away?
  bool Helps(const PlannedMove& move) const;
  // The copies of moves that help, in the order of the rank.
  std::vector<PlannedCopy> CopiesOf(
      const std::vector<PlannedMove>& moves) const;
  // Peak with those copies; some peak above `most` if it is above that.
  PlannedPeak PeakWith(const std::vector<PlannedMove>& moves,
                       double most) const;
  // No moves of a set of activations have a lower peak: those of `away`, by
  // index, are gone from behind their forward until they are needed.
  double LeastPeak(const std::vector<bool>& away) const;
  RankOrder OrderWith(const std::vector<PlannedCopy>& copies) const;

 private:
  // An entry as memory sees it.
  struct Entry {
    PassKind kind;
    bool joint_with_next;
    double weight;          // weight of its activation
    double left_to_weight;  // part of it that B leaves to W
  };
  // A FREE, or an L, which takes memory.
  struct Change {
    int64_t position;
    double time_s;
    bool takes;
    uint64_t bits;
    double bytes;
  };
  template <typename CopiesBefore, typename See>
  void Walk(double* now, const CopiesBefore& copies_before,
            const See& see) const;
  std::vector<Change> ChangesOf(const std::vector<PlannedMove>& moves) const;
  // What blocks see without copies, [position of the first part].
  std::vector<double> LevelsWithoutCopies() const;
  double MovedOf(Pass pass) const;  // part of `weight` that copies take
  bool LeavesNothing(const PlannedActivation& activation) const;
  // The first entry that begins, or ends, at `time_s` or later.
  int64_t FirstStart(double time_s) const;
  int64_t FirstEnd(double time_s) const;

  const Schedule& schedule_;
  const int rank_;
  const RankOrder& order_;
  const RankPassTimes& times_;
  const OffloadCosts& costs_;
  std::vector<PlannedActivation> activations_;
  std::vector<double> moved_;   // [activation]
  std::vector<Entry> entries_;  // entries of the order
  std::vector<double> levels_;
  const TimeIndex starts_;
  const TimeIndex ends_;
};

}  // namespace pipewright
