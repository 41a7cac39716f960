// What an order is searched for, and what an order takes: F, B and W of every
// stage and microbatch, in whole ticks. One direction, no slices, flushed; a
// backward follows the chain of stages.
//
// Microbatches are alike, so each stage runs them in their order: of any
// schedule the first F to start may be called F of microbatch 0, and so on, for
// B and W too, and nothing gets later or needs more memory.
//
// If a task recomputes, some F may keep less than they need for B until an R,
// before B, makes it again. Then names cannot always be exchanged: in F0 F1 B1
// R0 B0 only the older one runs again and there is never more than one whole;
// with B in the order of F both would. So that stages run their microbatches in
// order is a rule here, which the bound relies on too. R keep to the order by
// themselves: of two in another order names can be exchanged, as B come in it.
//
// If a task offloads, activations may wait on the host: O begins behind F, on a
// stream that copies out one after the other; FREE, which the rank waits at
// until O has ended, gives their room back; L takes it again as it is issued,
// and B waits for its end. Names cannot be exchanged either. A microbatch on a
// stage has an R or copies, not both.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/schedule/params.h"
#include "sim/schedule/placement.h"
#include "sim/schedule/plan_ticks.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// Order of each rank as numbers of passes, OrderTask::Number.
using PassOrders = std::vector<std::vector<int>>;

struct OrderTask {
  Placement placement = Placement::Plain(1);
  int microbatches = 1;
  std::vector<PlanTicks> stages;  // [stage]; no W where backwards are whole
  bool splits = true;             // B and W are passes of their own
  // Any F may run again, as R, which takes stages[].again.
  bool recomputes = false;
  // Any activations may wait on the host: stages[].out and in.
  bool offloads = false;
  // Activations of a microbatch, [stage], from the start of F on; what B leaves
  // to W, which may be more; and what a rank has room for, [rank]. Any unit.
  std::vector<double> kept;
  std::vector<double> left;
  std::vector<double> room;
  // The part of `kept` that goes with the end of an F that runs again, and that
  // R brings back, [stage]; empty: nothing recomputes.
  std::vector<double> dropped;
  // The part of `kept` that copies take, [stage]; empty: nothing offloads.
  std::vector<double> moved;
  // What no legal order holds more of, [rank]; `room` or more.
  std::vector<double> most_room;
  // All ranks step together, so the whole span counts and not the longest of a
  // rank.
  bool steps_together = false;

  int pp() const { return placement.pp(); }
  int num_stages() const { return placement.stages(); }
  int kinds() const { return splits ? 3 : 2; }
  // R and copies are not among them.
  int num_passes() const { return kinds() * num_stages() * microbatches; }

  // F, B, W, R, O, FREE, L are kinds 0 to 6.
  static constexpr int kAgain = 3;
  static constexpr int kOut = 4;
  static constexpr int kFree = 5;
  static constexpr int kIn = 6;
  int num_kinds() const {
    return offloads ? kIn + 1 : recomputes ? kAgain + 1 : kinds();
  }
  int num_numbers() const { return num_kinds() * num_stages() * microbatches; }
  int Number(int kind, int stage, int microbatch) const {
    return (kind * num_stages() + stage) * microbatches + microbatch;
  }
  int KindOf(int pass) const { return pass / (num_stages() * microbatches); }
  int StageOf(int pass) const { return pass / microbatches % num_stages(); }
  int MicrobatchOf(int pass) const { return pass % microbatches; }
  int RankOf(int pass) const { return placement.RankOf(StageOf(pass)); }
  int64_t Ticks(int pass) const { return TicksOf(KindOf(pass), StageOf(pass)); }
  int64_t TicksOf(int kind, int stage) const;
  // From the end of a pass of `from` to its arrival at `to`.
  int64_t Hop(int from, int to) const;
  // The pass whose result it waits for, or its copy; -1: none. B waits for its
  // L besides.
  int InputOf(int pass) const;
  // The pass on the next or last stage that waits for it; -1: none.
  int OutputOf(int pass) const;
  // What a pass takes of its rank's room, or gives back. An F that runs again
  // gives `dropped` back at its end besides.
  double Taken(int pass) const;
  // Which F have an R in these orders, [number of F]; empty: nothing
  // recomputes.
  std::vector<char> RunAgain(const PassOrders& orders) const;
  // The part of `kept` that R or copies can save, [stage].
  double MostGone(int stage) const;
  // The most that one microbatch takes at a time, of a stage or a whole rank.
  double MostOf(int stage) const;
  double MostOnRank(int rank) const;

  // Does no rank ever hold more than it has room for? R stand before their B,
  // FREE between O and L.
  bool Fits(const std::vector<int>& order, int rank) const;
  bool Fits(const PassOrders& orders) const;

  Schedule ToSchedule(absl::string_view name, const PassOrders& orders) const;
  // Empty where the schedule has other passes, stages elsewhere, or needs more
  // room. A whole backward counts as B with W behind it.
  PassOrders OrdersOf(const Schedule& schedule) const;
};

// `order` of a rank with as many more R as it takes to fit, each right before
// its B. If something has no room, of what waits whole for its B that which
// waits longest is dropped. Empty if nothing can be dropped any more.
std::vector<int> FitByR(const OrderTask& task, const std::vector<int>& order,
                        int rank);

// A limit that is exceeded by rounding alone.
double WithRounding(double room);

// Times of orders: each pass as early as its inputs and its rank let it.
class OrderTimes {
 public:
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

  explicit OrderTimes(const OrderTask& task);

  // What is minimised; kEndless where ranks wait for each other. Each rank has
  // F, R or O, FREE and L if there are any, B and W of a stage and microbatch
  // in this order.
  int64_t Run(const PassOrders& orders);
  int64_t start(int pass) const { return end_[pass] - task_.Ticks(pass); }
  int64_t end(int pass) const { return end_[pass]; }

 private:
  // What the passes of one kind and stage have in common.
  struct Row {
    int64_t ticks = 0;
    int64_t hop = 0;    // of the input
    int input = 0;      // from a pass to the one it waits for; 0: none
    int receiver = -1;  // rank that waits for the result
    int load = 0;       // from a B to its L; 0: nothing offloads
    int copy = 0;       // kOut, kFree or kIn
  };

  void Visit(const std::vector<int>& order, int rank);
  void RunCopy(const Row& row, int pass, int rank);

  const OrderTask& task_;
  std::vector<Row> rows_;       // [kind * stages + stage]
  std::vector<int64_t> end_;    // [pass]; -1: not yet
  std::vector<size_t> next_;    // [rank]
  std::vector<int64_t> clock_;  // [rank]
  std::vector<int64_t> out_;    // [rank] end of its last O
  std::vector<int64_t> in_;     // [rank] and L
  std::vector<int> waiting_;    // ranks that may go on
  std::vector<char> is_waiting_;
  int done_ = 0;
};

}  // namespace pipewright
