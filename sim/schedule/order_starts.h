// Orders that a search can start from, where no registered schedule is made for
// the task: warm-ups of several lengths, lists of what can start first, and
// patterns that repeat. If the task recomputes or offloads, the same as if
// there were room for all, with R or copies where there is none.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/schedule/order_task.h"

namespace pipewright {

// Puts W where a rank would wait, into orders of F and B, and R if there are
// any.
class WeightFiller {
 public:
  // Whether a rank waits for its next F or B in place of a W that it would
  // delay: never, if the arrival is known, or if it may be.
  enum class Patience { kNone, kKnown, kPossible };

  explicit WeightFiller(const OrderTask& task) : task_(task) {}

  // Empty where ranks wait for each other, or the next F finds no room though
  // no W is left. What comes out fits.
  PassOrders Fill(const PassOrders& orders, Patience patience);

 private:
  const OrderTask& task_;
  std::vector<int64_t> end_;  // [pass]; -1: not begun
};

// A microbatch in a pattern of so many ticks: microbatch k runs each pass k
// periods later than microbatch 0 does.
class CyclicPattern {
 public:
  // Whether B and W run as one, or W goes where there is a gap.
  enum class Weights { kBehind, kInGaps };

  // Places pass after pass as early as its rank is free at that phase of the
  // period. Nothing if one finds no gap.
  static std::optional<CyclicPattern> Place(const OrderTask& task,
                                            int64_t period, Weights weights);

  // Ticks from one microbatch to the next, in the mean: longer than the period
  // if room for all is missing, so that after as many microbatches as there is
  // room for some periods stay empty.
  double TicksEach() const { return ticks_each_; }

  // Orders of F and B, or of all passes, by their starts.
  PassOrders Orders(bool with_weights) const;

 private:
  CyclicPattern(const OrderTask& task, int64_t period)
      : task_(&task), period_(period), start_(task.num_stages() * 3) {}

  // Periods that the k-th microbatch starts after the first.
  int64_t PeriodsBefore(int microbatch) const;
  void FindSkips();

  const OrderTask* task_;
  int64_t period_;
  std::vector<int64_t> start_;  // [kind * stages + stage] of microbatch 0
  int together_ = 1;            // microbatches before periods stay empty
  int64_t spread_ = 1;          // periods from each such group to the next
  double ticks_each_ = 0;
};

// The task with room for all.
OrderTask WithRoomForAll(const OrderTask& task);

// `orders` of `wide`, that task, with R where `task` has no room (FitByR), as
// they are and with W wherever a WeightFiller puts them; or with copies, if it
// offloads (OrdersWithCopies). May be empty. `has_weights`: W are in them.
std::vector<PassOrders> OrdersWithLess(const OrderTask& task,
                                       const OrderTask& wide,
                                       const PassOrders& orders,
                                       bool has_weights);

// Orders of all kinds, best first, no more than `most`; all fit. `least`: that
// of LeastTicks.
std::vector<PassOrders> StartOrders(const OrderTask& task, int64_t least,
                                    int most);

}  // namespace pipewright
