// Greedy lists on a pipeline with one stage a rank: a rank that is free runs a
// B whose input is there, else such an F if its activations fit, else a W, else
// it waits. What the search of zb_auto_plan.h is measured by: that one places
// an F and a B of each rank in each round, which holds ranks up where a limit
// lets fewer microbatches than ranks be under way. Stages may differ here.
// Times are ticks, memory is in microbatches.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "sim/schedule/builder.h"
#include "sim/schedule/params.h"
#include "sim/schedule/plan_ticks.h"

namespace pipewright {

// What a rank does not begin where a pass that goes first is known to arrive
// before it would end.
enum class ZbPatience { kNothing, kWeight, kWeightAndForward };

struct ZbList {
  int64_t span = std::numeric_limits<int64_t>::max();  // longest of a rank
  double limit = 0;                                    // 0: no list
  ZbPatience patience = ZbPatience::kNothing;
};

class ZbListPlanner {
 public:
  explicit ZbListPlanner(const ScheduleParams& params);

  // The best list at `limit`, from 1 on, if it is shorter than `best`; else
  // `best`. The first of equals wins.
  ZbList Improve(double limit, const ZbList& best);

  // As ZbAutoPlanner's.
  double reached() const { return reached_; }
  bool IsLeast(double limit, const ZbList& list) const {
    return list.span <= LeastSpan(ticks_, microbatches_, limit);
  }

  // The order of a list that Improve gave.
  void Record(const ZbList& list, ScheduleBuilder* builder);

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  struct Rank {
    int64_t clock = 0;
    int64_t idle = 0;  // since its first pass
    bool waits = true;
    int forwards = 0;
    int backwards = 0;
    int weights = 0;
  };

  // False when the span reaches `most` and the list was given up.
  bool Run(double limit, ZbPatience patience, int64_t most);
  // Begins what `rank` can at `now`, or lets it wait for what is known to
  // arrive.
  void Step(int rank, int64_t now);
  int64_t NextForward(int rank) const;
  int64_t NextBackward(int rank) const;
  void Begin(int rank, int64_t now, PassKind kind);
  // A pass of the rank next to it ends at `arrival` less a hop.
  void Tell(int rank, int64_t arrival);
  size_t Slot(int rank, int microbatch) const {
    return static_cast<size_t>(microbatch & ring_mask_) * pp_ + rank;
  }

  const int pp_;
  const int microbatches_;
  const double held_;
  const std::vector<PlanTicks> ticks_;  // [rank]

  double limit_ = 0;  // with slack for rounding
  ZbPatience patience_ = ZbPatience::kNothing;
  ScheduleBuilder* builder_ = nullptr;  // null: nothing is recorded
  std::vector<Rank> ranks_;
  // Ends of F and B, a ring of microbatches.
  std::vector<int64_t> forward_end_;
  std::vector<int64_t> backward_end_;
  int ring_mask_ = 0;
  // When a rank has ended a pass, or waits for an arrival: date, rank.
  using Event = std::pair<int64_t, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t span_ = 0;
  double reached_ = std::numeric_limits<double>::infinity();
};

}  // namespace pipewright
