#include "sim/schedule/zb_list_plan.h"

#include <algorithm>
#include <bit>

#include "sim/base/check.h"

namespace pipewright {

ZbListPlanner::ZbListPlanner(const ScheduleParams& params)
    : pp_(params.pp),
      microbatches_(params.microbatches),
      held_(params.costs.held_until_weight),
      ticks_(TicksOfStages(params)) {}

ZbList ZbListPlanner::Improve(double limit, const ZbList& best) {
  ZbList list = best;
  reached_ = 1;
  for (const ZbPatience patience : {ZbPatience::kNothing, ZbPatience::kWeight,
                                    ZbPatience::kWeightAndForward}) {
    if (Run(limit, patience, list.span)) list = {span_, limit, patience};
  }
  return list;
}

void ZbListPlanner::Record(const ZbList& list, ScheduleBuilder* builder) {
  for (int rank = 0; rank < pp_; ++rank) {
    builder->Reserve(rank, int64_t{3} * microbatches_);
  }
  builder_ = builder;
  PW_CHECK(Run(list.limit, list.patience, kNever));
  builder_ = nullptr;
}

bool ZbListPlanner::Run(double limit, ZbPatience patience, int64_t most) {
  limit_ = limit * (1 + kLimitRounding);
  patience_ = patience;
  span_ = 0;
  ranks_.assign(pp_, Rank());
  events_ = {};
  // No rank is further ahead of its neighbours than its memory lets it be.
  const uint32_t ring = std::bit_ceil(
      static_cast<uint32_t>(std::min<double>(microbatches_, limit_ + 2)));
  ring_mask_ = static_cast<int>(ring) - 1;
  forward_end_.resize(size_t{ring} * pp_);
  backward_end_.resize(size_t{ring} * pp_);
  events_.push({0, 0});
  while (!events_.empty() && span_ < most) {
    const auto [now, rank] = events_.top();
    events_.pop();
    if (ranks_[rank].clock <= now) Step(rank, now);
  }
  return span_ < most;
}

int64_t ZbListPlanner::NextForward(int rank) const {
  const int microbatch = ranks_[rank].forwards;
  if (rank == 0) return microbatch < microbatches_ ? 0 : kNever;
  return microbatch < ranks_[rank - 1].forwards
             ? forward_end_[Slot(rank - 1, microbatch)] + ticks_[rank].hop
             : kNever;
}

int64_t ZbListPlanner::NextBackward(int rank) const {
  const int microbatch = ranks_[rank].backwards;
  if (rank == pp_ - 1) {
    return microbatch < ranks_[rank].forwards ? ranks_[rank].clock : kNever;
  }
  return microbatch < ranks_[rank + 1].backwards
             ? backward_end_[Slot(rank + 1, microbatch)] + ticks_[rank].hop
             : kNever;
}

void ZbListPlanner::Step(int rank, int64_t now) {
  Rank& state = ranks_[rank];
  const int64_t backward = NextBackward(rank);
  if (backward <= now) return Begin(rank, now, PassKind::kBackwardInput);
  const int64_t forward = NextForward(rank);
  const double memory = state.forwards - state.backwards + 1 +
                        held_ * (state.backwards - state.weights);
  const bool fits = memory <= limit_;
  const int64_t forward_end = now + ticks_[rank].forward;
  if (fits && forward <= now &&
      (patience_ != ZbPatience::kWeightAndForward || backward >= forward_end)) {
    reached_ = std::max(reached_, memory);
    return Begin(rank, now, PassKind::kForward);
  }
  const int64_t weight_end = now + ticks_[rank].backward_weight;
  const bool held_up =
      backward < weight_end || (fits && forward > now && forward < weight_end);
  if (state.weights < state.backwards &&
      (patience_ == ZbPatience::kNothing || !held_up)) {
    return Begin(rank, now, PassKind::kBackwardWeight);
  }
  state.waits = true;
  int64_t next = backward;
  if (forward > now) next = std::min(next, forward);
  if (next != kNever) events_.push({next, rank});
}

void ZbListPlanner::Begin(int rank, int64_t now, PassKind kind) {
  Rank& state = ranks_[rank];
  const PlanTicks& ticks = ticks_[rank];
  if (state.forwards > 0) state.idle += now - state.clock;
  span_ = std::max(span_, state.idle + microbatches_ * ticks.work());
  state.waits = false;
  int microbatch = 0;
  if (kind == PassKind::kForward) {
    microbatch = state.forwards++;
    state.clock = now + ticks.forward;
    forward_end_[Slot(rank, microbatch)] = state.clock;
    if (rank + 1 < pp_) Tell(rank + 1, state.clock + ticks_[rank + 1].hop);
  } else if (kind == PassKind::kBackwardInput) {
    microbatch = state.backwards++;
    state.clock = now + ticks.backward_input;
    backward_end_[Slot(rank, microbatch)] = state.clock;
    if (rank > 0) Tell(rank - 1, state.clock + ticks_[rank - 1].hop);
  } else {
    microbatch = state.weights++;
    state.clock = now + ticks.backward_weight;
  }
  if (builder_ != nullptr) builder_->Add(rank, kind, microbatch);
  events_.push({state.clock, rank});
}

void ZbListPlanner::Tell(int rank, int64_t arrival) {
  if (ranks_[rank].waits) events_.push({arrival, rank});
}

}  // namespace pipewright
