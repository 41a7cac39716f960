// The search of the zero-bubble paper at one memory limit, on a pipeline with
// one stage a rank: 8 runs of one greedy rule. Which limits are tried is up to
// the caller (zb_auto.cc). Times are ticks, memory is in microbatches.
//
// Source: arXiv 2401.10241, section 3.1 and appendix B; the authors' released
// planner for what the paper leaves open.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/schedule/builder.h"
#include "sim/schedule/params.h"
#include "sim/schedule/plan_ticks.h"

namespace pipewright {

// The three choices of a run.
struct ZbSwitches {
  bool gap_before_first_backward = false;
  bool prefer_backward = false;
  bool fill_small_gaps = false;
};

struct ZbPlan {
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  int64_t bubble = kNone;  // largest idle time of a rank inside its own span
  double limit = 0;
  ZbSwitches switches;
};

class ZbAutoPlanner {
 public:
  explicit ZbAutoPlanner(const ScheduleParams& params);

  // The best of the 8 runs at `limit`, from 1 on, where it beats `best`; else
  // `best`. The first of equals wins.
  ZbPlan Improve(double limit, const ZbPlan& best);

  // The most memory that the runs of the last Improve asked for and got: a
  // limit from there up to theirs changes nothing.
  double reached() const { return reached_; }

  // The order of a plan that Improve gave.
  void Record(const ZbPlan& plan, ScheduleBuilder* builder);

  // No plan within `limit` has a smaller bubble.
  int64_t LeastBubble(double limit) const;
  bool IsLeast(double limit, const ZbPlan& plan) const {
    return plan.bubble <= LeastBubble(limit);
  }

 private:
  struct Rank {
    int64_t clock;
    int64_t bubble;
    int forwards;
    int backwards;
    int weights;
  };

  // One run. False when its bubble reaches `most` and it was given up.
  bool Run(double limit, ZbSwitches switches, int64_t most);
  void WarmUp();
  void ChooseForwards();
  void PlaceForwards();
  void PlaceBackwards();

  double MemoryWithForward(const Rank& state, int more = 0) const;
  bool FitsForward(const Rank& state, int more = 0);
  int64_t ForwardArrival(int rank) const;
  int64_t& ForwardEnd(int microbatch, int rank);
  void WaitUntil(Rank& state, int64_t time);
  void PlaceForward(int rank);
  void PlaceBackward(int rank);
  void PlaceWeight(int rank);
  void Fill(int rank, int64_t arrival);

  const int pp_;
  const int microbatches_;
  const double held_;
  const PlanTicks ticks_;

  double limit_ = 0;  // with slack for rounding
  ZbSwitches switches_;
  ScheduleBuilder* builder_ = nullptr;  // null: nothing is recorded
  std::vector<Rank> ranks_;
  std::vector<char> wanted_;  // places an F in this round
  std::vector<int> extra_;    // F in front of the first B, besides F0
  // Ends of F, a ring of microbatches, and of the B of this round.
  std::vector<int64_t> forward_end_;
  std::vector<int64_t> backward_end_;
  int ring_mask_ = 0;
  int64_t largest_bubble_ = 0;
  double reached_ = std::numeric_limits<double>::infinity();
};

}  // namespace pipewright
