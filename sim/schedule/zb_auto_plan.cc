#include "sim/schedule/zb_auto_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/base/check.h"

namespace pipewright {

ZbAutoPlanner::ZbAutoPlanner(const ScheduleParams& params)
    : pp_(params.pp),
      microbatches_(params.microbatches),
      held_(params.costs.held_until_weight),
      ticks_(TicksOf(params)),
      ranks_(params.pp),
      wanted_(params.pp),
      extra_(params.pp),
      backward_end_(params.pp) {}

int64_t ZbAutoPlanner::LeastBubble(double limit) const {
  return LeastSpan(std::vector<PlanTicks>(pp_, ticks_), microbatches_, limit) -
         microbatches_ * ticks_.work();
}

ZbPlan ZbAutoPlanner::Improve(double limit, const ZbPlan& best) {
  ZbPlan plan = best;
  reached_ = 1;
  for (const bool gap : {true, false}) {
    for (const bool prefer : {true, false}) {
      for (const bool fill : {true, false}) {
        const ZbSwitches switches = {gap, prefer, fill};
        if (Run(limit, switches, plan.bubble)) {
          plan = {largest_bubble_, limit, switches};
        }
      }
    }
  }
  return plan;
}

void ZbAutoPlanner::Record(const ZbPlan& plan, ScheduleBuilder* builder) {
  for (int rank = 0; rank < pp_; ++rank) {
    builder->Reserve(rank, int64_t{3} * microbatches_);
  }
  builder_ = builder;
  PW_CHECK(Run(plan.limit, plan.switches, ZbPlan::kNone));
  builder_ = nullptr;
}

bool ZbAutoPlanner::Run(double limit, ZbSwitches switches, int64_t most) {
  limit_ = limit * (1 + kLimitRounding);
  switches_ = switches;
  largest_bubble_ = 0;
  ranks_.assign(pp_, Rank());
  // All ranks have placed as many B, and a rank's F are ahead of its B by no
  // more than its memory: that many ends of F are still asked for.
  const auto window =
      static_cast<uint32_t>(std::min<double>(microbatches_, limit_ + 2));
  const uint32_t ring = std::bit_ceil(window);
  ring_mask_ = static_cast<int>(ring) - 1;
  forward_end_.resize(
      std::max<size_t>(forward_end_.size(), size_t{ring} * pp_));
  WarmUp();
  for (int microbatch = 1; microbatch < microbatches_; ++microbatch) {
    if (largest_bubble_ >= most) return false;
    ChooseForwards();
    PlaceForwards();
    PlaceBackwards();
  }
  for (int rank = 0; rank < pp_; ++rank) {
    while (ranks_[rank].weights < microbatches_) PlaceWeight(rank);
  }
  return largest_bubble_ < most;
}

// F up to the first B. A rank with more of them than the one in front of it
// would wait for its input.
void ZbAutoPlanner::WarmUp() {
  for (int rank = 0; rank < pp_; ++rank) PlaceForward(rank);
  int64_t end = ranks_[pp_ - 1].clock + ticks_.backward_input;
  extra_[pp_ - 1] = 0;
  for (int rank = pp_ - 2; rank >= 0; --rank) {
    const Rank& state = ranks_[rank];
    const int64_t arrival = end + ticks_.hop;
    int64_t time = state.clock;
    int extra = 0;
    while (1 + extra < microbatches_ && FitsForward(state, extra) &&
           (switches_.gap_before_first_backward
                ? time + ticks_.forward <= arrival
                : time < arrival)) {
      ++extra;
      time += ticks_.forward;
    }
    extra_[rank] = extra;
    end = std::max(time, arrival) + ticks_.backward_input;
  }
  for (int rank = 1; rank < pp_; ++rank) {
    while (extra_[rank] > 0 && extra_[rank] >= extra_[rank - 1] &&
           1 + extra_[rank] < microbatches_) {
      --extra_[rank];
    }
  }
  for (int rank = 0; rank < pp_; ++rank) {
    for (int extra = 0; extra < extra_[rank]; ++extra) PlaceForward(rank);
  }
  for (int rank = pp_ - 1; rank >= 0; --rank) PlaceBackward(rank);
}

// Which ranks place an F in this round. One that is two ahead of its successor
// may leave it out where it would delay that one's next B.
void ZbAutoPlanner::ChooseForwards() {
  for (int rank = 0; rank < pp_; ++rank) {
    const Rank& state = ranks_[rank];
    wanted_[rank] = state.forwards < microbatches_;
    if (!wanted_[rank] || !switches_.prefer_backward || rank == pp_ - 1 ||
        state.forwards < ranks_[rank + 1].forwards + 2) {
      continue;
    }
    const int64_t backward = ranks_[rank + 1].clock + ticks_.forward +
                             ticks_.backward_input + ticks_.hop;
    if (state.clock >= backward) {
      wanted_[rank] = false;
      continue;
    }
    Rank later = state;
    while (!FitsForward(later) && later.weights < later.backwards) {
      ++later.weights;
      later.clock += ticks_.backward_weight;
    }
    if (later.clock + ticks_.forward > backward &&
        backward - state.clock <= largest_bubble_ - state.bubble) {
      wanted_[rank] = false;
    }
  }
  for (int rank = pp_ - 2; rank >= 0; --rank) {
    if (!wanted_[rank + 1]) wanted_[rank] = false;
  }
}

void ZbAutoPlanner::PlaceForwards() {
  for (int rank = 0; rank < pp_; ++rank) {
    if (!wanted_[rank]) continue;
    while (!FitsForward(ranks_[rank])) PlaceWeight(rank);
    if (rank > 0) Fill(rank, ForwardArrival(rank));
    PlaceForward(rank);
  }
}

void ZbAutoPlanner::PlaceBackwards() {
  for (int rank = pp_ - 1; rank >= 0; --rank) {
    const Rank& state = ranks_[rank];
    if (rank < pp_ - 1) Fill(rank, backward_end_[rank + 1] + ticks_.hop);
    if (rank == 0 && state.forwards == microbatches_) {
      while (state.weights < state.backwards) PlaceWeight(rank);
    }
    PlaceBackward(rank);
  }
}

// Microbatches in flight with `more` F and one, split counting.
double ZbAutoPlanner::MemoryWithForward(const Rank& state, int more) const {
  return state.forwards - state.backwards + more + 1 +
         held_ * (state.backwards - state.weights);
}

bool ZbAutoPlanner::FitsForward(const Rank& state, int more) {
  const double memory = MemoryWithForward(state, more);
  if (memory > limit_) return false;
  reached_ = std::max(reached_, memory);
  return true;
}

int64_t& ZbAutoPlanner::ForwardEnd(int microbatch, int rank) {
  return forward_end_[static_cast<size_t>(microbatch & ring_mask_) * pp_ +
                      rank];
}

int64_t ZbAutoPlanner::ForwardArrival(int rank) const {
  const int microbatch = ranks_[rank].forwards;
  return forward_end_[static_cast<size_t>(microbatch & ring_mask_) * pp_ +
                      rank - 1] +
         ticks_.hop;
}

// Idle time counts from the rank's first F on.
void ZbAutoPlanner::WaitUntil(Rank& state, int64_t time) {
  if (time <= state.clock) return;
  if (state.forwards > 0) {
    state.bubble += time - state.clock;
    largest_bubble_ = std::max(largest_bubble_, state.bubble);
  }
  state.clock = time;
}

void ZbAutoPlanner::PlaceForward(int rank) {
  Rank& state = ranks_[rank];
  if (rank > 0) WaitUntil(state, ForwardArrival(rank));
  state.clock += ticks_.forward;
  ForwardEnd(state.forwards, rank) = state.clock;
  if (builder_ != nullptr) {
    builder_->Add(rank, PassKind::kForward, state.forwards);
  }
  ++state.forwards;
}

// The B of the round: its input is what the next rank placed just before.
void ZbAutoPlanner::PlaceBackward(int rank) {
  Rank& state = ranks_[rank];
  if (rank < pp_ - 1) {
    WaitUntil(state, backward_end_[rank + 1] + ticks_.hop);
  }
  state.clock += ticks_.backward_input;
  backward_end_[rank] = state.clock;
  if (builder_ != nullptr) {
    builder_->Add(rank, PassKind::kBackwardInput, state.backwards);
  }
  ++state.backwards;
}

void ZbAutoPlanner::PlaceWeight(int rank) {
  Rank& state = ranks_[rank];
  // Below a limit of 1 only; from there on B alone makes room for F.
  PW_CHECK(state.weights < state.backwards);
  state.clock += ticks_.backward_weight;
  if (builder_ != nullptr) {
    builder_->Add(rank, PassKind::kBackwardWeight, state.weights);
  }
  ++state.weights;
}

// W until `arrival`; one that is too long for what is left only where the wait
// would make the largest bubble larger.
void ZbAutoPlanner::Fill(int rank, int64_t arrival) {
  const Rank& state = ranks_[rank];
  while (state.weights < state.backwards &&
         state.clock + ticks_.backward_weight <= arrival) {
    PlaceWeight(rank);
  }
  if (state.weights == state.backwards || state.clock >= arrival) return;
  if (arrival - state.clock > largest_bubble_ - state.bubble ||
      switches_.fill_small_gaps) {
    PlaceWeight(rank);
  }
}

}  // namespace pipewright
