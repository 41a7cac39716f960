// The automatic search of the zero-bubble paper on a V: each rank holds chunk
// 0 of the way down and chunk 1 of the way back up. 4 greedy runs, each
// repeated with the idle times of the one before. Times are ticks, memory is
// in chunks.
//
// Source: arXiv 2401.10241, section 6; the authors' released planner for what
// the paper leaves open.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/base/fifo.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/params.h"
#include "sim/schedule/plan_ticks.h"

namespace pipewright {

// Leg 0 runs from rank 0 to pp-1: F of chunk 0, B of chunk 1. Leg 1 runs back:
// F of chunk 1, B of chunk 0.
class ZbVPlanner {
 public:
  // `limit` in microbatches, at least pp: with less the rule has no schedule.
  ZbVPlanner(const ScheduleParams& params, double limit);

  // The largest idle time of a rank inside its own span, in ticks.
  int64_t bubble() const { return best_.bubble; }

  // Peak of all ranks in microbatches, split counting.
  double peak() const { return best_.peak_chunks / 2; }

  // The order of the best run.
  void Record(ScheduleBuilder* builder);

 private:
  enum Leg { kDown = 0, kUp = 1 };
  using Ends = std::array<std::vector<int64_t>, 2>;  // [leg]

  struct Rank {
    int64_t clock = 0;
    int64_t bubble = 0;
    int64_t spare = 0;  // what it may lose at least, from the run before
    std::array<int, 2> forwards = {};
    std::array<int, 2> backwards = {};
    int weights = 0;

    int all_forwards() const { return forwards[kDown] + forwards[kUp]; }
    int all_backwards() const { return backwards[kDown] + backwards[kUp]; }
    int pending() const { return all_backwards() - weights; }
  };
  struct Choice {
    bool fill_backward = false;
    bool fill_forward = false;
    std::vector<int64_t> spare;  // [rank]; of the run before, 0 at first
  };
  struct Plan {
    int64_t bubble = 0;
    double peak_chunks = 0;
    Choice choice;
  };

  Plan Search();
  // False when the bubble reaches `most` and the run was given up.
  bool Run(const Choice& choice, int64_t most);
  void StartForwards();
  void WarmUp();
  void PlaceBackwards();
  void PlaceForwards();

  double Memory(const Rank& state) const;
  int64_t Arrival(const Ends& ends, int number, int rank, Leg leg) const;
  int64_t ForwardArrival(int rank, Leg leg) const;
  int64_t BackwardArrival(int rank, Leg leg) const;
  void WaitUntil(Rank& state, int64_t time);
  void Fill(int rank, int64_t arrival, bool small_gaps);
  void PlaceForward(int rank, Leg leg);
  void PlaceBackward(int rank, Leg leg);
  void PlaceWeight(int rank);

  const int pp_;
  const int microbatches_;
  const double held_;
  const double limit_;  // chunks, with slack for rounding
  const PlanTicks ticks_;
  const int ring_mask_;

  const Choice* choice_ = nullptr;
  ScheduleBuilder* builder_ = nullptr;  // null: nothing is recorded
  std::vector<Fifo<Pass>> weights_;     // [rank], to come; only when recording
  std::vector<Rank> ranks_;
  std::vector<Leg> legs_;  // legs of this step's B
  Ends forward_ends_;      // rings of microbatches, all ranks each
  Ends backward_ends_;
  int64_t largest_bubble_ = 0;
  double peak_chunks_ = 0;
  Plan best_;
};

}  // namespace pipewright
