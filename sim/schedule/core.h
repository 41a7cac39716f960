// The longest-path core: orders and durations in, times out. It runs the
// passes of a rank in sequence, each as early as possible, until an input is
// missing. Engines and planners drive it rank by rank; what is not a pass is
// theirs to handle at the positions where they stop it.
//
// A pass costs about 4 ns: keep branches and memory accesses out of Advance.
// What passes take is that of their lane; or that with factors; or drawn, which
// costs as much as the draw.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/schedule/pass.h"
#include "sim/schedule/token_queue.h"

namespace pipewright {

struct ReplayLane {
  double seconds = 0;
  double output_delay_s = 0;  // from the end of a pass to its arrival
  int32_t input = -1;
  int32_t output = -1;
  // Not 0: stops Advance in front of the pass; the caller runs it.
  uint64_t special = 0;
};

struct ReplayRank {
  const Pass* order = nullptr;
  const ReplayLane* lanes = nullptr;
  // [lane] factors by microbatch of a lane alone, null: 1; null for none.
  const double* const* lane_factors = nullptr;
  int64_t position = 0;     // next pass
  double clock_s = 0;       // the compute stream is free from here on
  double last_start_s = 0;  // start of the pass or block run last
  // Set by RunBlock: when it could have begun but for `earliest_s`.
  double last_ready_s = 0;
  double drawn_s = 0;  // time of all blocks so far, where times are drawn
};

// What passes take where that is drawn, anew for each of them.
class DrawnTimes {
 public:
  virtual ~DrawnTimes() = default;
  virtual double Seconds(int rank, Pass pass) const = 0;
};

// Sees nothing, costs nothing.
struct NullObserver {
  static constexpr bool kActive = false;
  void OnPass(int, int64_t, Pass, double, double, bool) {}
  void OnTransfer(int, Pass, double, double) {}
};

class ReplayCore {
 public:
  enum class Outcome {
    kStopped,  // reached `stop`
    kBlocked,  // an input of the next pass is missing
    kSpecial,  // the next pass is on a special lane
  };

  // Factors by microbatch and by slice: null for 1 everywhere. `pair_factor`:
  // time of a block over that of its passes one after the other.
  ReplayCore(std::vector<ReplayRank> ranks, int num_channels,
             const double* microbatch_factor, double pair_factor,
             const double* slice_factor = nullptr)
      : ranks_(std::move(ranks)),
        queues_(num_channels),
        factor_(microbatch_factor),
        pair_factor_(pair_factor),
        slice_factor_(slice_factor),
        times_(microbatch_factor != nullptr || slice_factor != nullptr ||
                       std::any_of(ranks_.begin(), ranks_.end(),
                                   [](const ReplayRank& each) {
                                     return each.lane_factors != nullptr;
                                   })
                   ? Times::kScaled
                   : Times::kLanes) {}

  // In place of lanes and factors; `drawn` must outlive the runs.
  void Draw(const DrawnTimes* drawn) {
    drawn_ = drawn;
    times_ = Times::kDrawn;
  }

  ReplayRank& rank(int rank) { return ranks_[rank]; }
  const ReplayRank& rank(int rank) const { return ranks_[rank]; }
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  TokenQueue& queue(int channel) { return queues_[channel]; }

  // Runs passes of `rank` from its position up to but not including `stop`.
  // Observer: OnPass(rank, position, pass, start, end, joint) and
  // OnTransfer(channel, pass, start, arrival).
  template <class Observer>
  Outcome Advance(int rank, int64_t stop, Observer& observer) {
    switch (times_) {
      case Times::kScaled:
        return AdvanceImpl<Times::kScaled>(rank, stop, observer);
      case Times::kDrawn:
        return AdvanceImpl<Times::kDrawn>(rank, stop, observer);
      case Times::kLanes:
        break;
    }
    return AdvanceImpl<Times::kLanes>(rank, stop, observer);
  }

  // Runs the pass, or the block (X&Y), at the position of `rank`, special or
  // not, and not before `earliest_s`. False, with nothing changed, when an
  // input is missing.
  template <class Observer>
  bool RunBlock(int rank, double earliest_s, Observer& observer) {
    switch (times_) {
      case Times::kScaled:
        return RunBlockImpl<Times::kScaled>(rank, earliest_s, observer);
      case Times::kDrawn:
        return RunBlockImpl<Times::kDrawn>(rank, earliest_s, observer);
      case Times::kLanes:
        break;
    }
    return RunBlockImpl<Times::kLanes>(rank, earliest_s, observer);
  }

 private:
  enum class Times { kLanes, kScaled, kDrawn };

  template <Times kTimes>
  double Seconds(int number, const ReplayLane& lane, Pass pass) const {
    if constexpr (kTimes == Times::kDrawn) {
      return drawn_->Seconds(number, pass);
    }
    const ReplayRank& rank = ranks_[number];
    double seconds = lane.seconds;
    if constexpr (kTimes == Times::kScaled) {
      if (factor_ != nullptr) seconds *= factor_[pass.microbatch()];
      if (slice_factor_ != nullptr) seconds *= slice_factor_[pass.slice()];
      if (rank.lane_factors != nullptr) {
        const double* const own = rank.lane_factors[pass.lane()];
        if (own != nullptr) seconds *= own[pass.microbatch()];
      }
    }
    return seconds;
  }

  // Inlined into its few callers: a visit may be two passes long.
  template <Times kTimes, class Observer>
  [[gnu::always_inline]] inline Outcome AdvanceImpl(int rank, int64_t stop,
                                                    Observer& observer);

  template <Times kTimes, class Observer>
  [[gnu::noinline]] bool RunBlockImpl(int rank, double earliest_s,
                                      Observer& observer);

  std::vector<ReplayRank> ranks_;
  std::vector<TokenQueue> queues_;
  const double* factor_;
  const double pair_factor_;
  const double* slice_factor_;
  const DrawnTimes* drawn_ = nullptr;
  Times times_;
};

template <ReplayCore::Times kTimes, class Observer>
ReplayCore::Outcome ReplayCore::AdvanceImpl(int rank, int64_t stop,
                                            Observer& observer) {
  ReplayRank& state = ranks_[rank];
  const Pass* const order = state.order;
  const ReplayLane* const lanes = state.lanes;
  TokenQueue* const queues = queues_.data();
  int64_t position = state.position;
  double clock_s = state.clock_s;
  double start_s = state.last_start_s;
  Outcome outcome = Outcome::kStopped;
  while (position < stop) {
    const Pass pass = order[position];
    const ReplayLane& lane = lanes[pass.lane()];
    if ((lane.special | (pass.bits() & Pass::kJointBit)) != 0) [[unlikely]] {
      if (lane.special || (pass.joint_with_next() &&
                           lanes[order[position + 1].lane()].special)) {
        outcome = Outcome::kSpecial;
        break;
      }
      state.position = position;
      state.clock_s = clock_s;
      if (!RunBlockImpl<kTimes>(rank, 0, observer)) {
        outcome = Outcome::kBlocked;
        break;
      }
      position = state.position;
      clock_s = state.clock_s;
      start_s = state.last_start_s;
      continue;
    }
    double begin_s = clock_s;
    if (lane.input >= 0) {
      double arrival_s;
      if (!queues[lane.input].Pop(pass.key(), &arrival_s)) {
        outcome = Outcome::kBlocked;
        break;
      }
      begin_s = std::max(begin_s, arrival_s);
    }
    const double seconds = Seconds<kTimes>(rank, lane, pass);
    start_s = begin_s;
    clock_s = begin_s + seconds;
    if constexpr (kTimes == Times::kDrawn) state.drawn_s += seconds;
    if constexpr (Observer::kActive) {
      observer.OnPass(rank, position, pass, begin_s, clock_s, false);
    }
    if (lane.output >= 0) {
      const double arrival_s = clock_s + lane.output_delay_s;
      if constexpr (Observer::kActive) {
        observer.OnTransfer(lane.output, pass, clock_s, arrival_s);
      }
      queues[lane.output].Push(arrival_s, pass.key());
    }
    ++position;
  }
  state.position = position;
  state.clock_s = clock_s;
  state.last_start_s = start_s;
  return outcome;
}

template <ReplayCore::Times kTimes, class Observer>
bool ReplayCore::RunBlockImpl(int rank, double earliest_s, Observer& observer) {
  ReplayRank& state = ranks_[rank];
  const Pass* const passes = state.order + state.position;
  const bool joint = passes[0].joint_with_next();
  const int parts = joint ? 2 : 1;
  const ReplayLane* lanes[2] = {};
  for (int part = 0; part < parts; ++part) {
    lanes[part] = &state.lanes[passes[part].lane()];
    if (lanes[part]->input >= 0 &&
        !queues_[lanes[part]->input].Contains(passes[part].key())) {
      return false;
    }
  }
  double ready_s = state.clock_s;
  for (int part = 0; part < parts; ++part) {
    double arrival_s = 0;
    if (lanes[part]->input >= 0 &&
        queues_[lanes[part]->input].Pop(passes[part].key(), &arrival_s)) {
      ready_s = std::max(ready_s, arrival_s);
    }
  }
  state.last_ready_s = ready_s;
  const double start_s = std::max(ready_s, earliest_s);
  const double share = joint ? pair_factor_ : 1;
  const double first_s = Seconds<kTimes>(rank, *lanes[0], passes[0]) * share;
  const double second_s =
      joint ? Seconds<kTimes>(rank, *lanes[1], passes[1]) * share : 0;
  const double middle_s = start_s + first_s;
  // Not middle_s + second_s: a block is one operation of one duration.
  const double end_s = start_s + (first_s + second_s);
  if constexpr (kTimes == Times::kDrawn) state.drawn_s += first_s + second_s;
  if constexpr (Observer::kActive) {
    observer.OnPass(rank, state.position, passes[0], start_s,
                    joint ? middle_s : end_s, joint);
    if (joint) {
      observer.OnPass(rank, state.position + 1, passes[1], middle_s, end_s,
                      true);
    }
  }
  for (int part = 0; part < parts; ++part) {
    if (lanes[part]->output < 0) continue;
    const double arrival_s = end_s + lanes[part]->output_delay_s;
    if constexpr (Observer::kActive) {
      observer.OnTransfer(lanes[part]->output, passes[part], end_s, arrival_s);
    }
    queues_[lanes[part]->output].Push(arrival_s, passes[part].key());
  }
  state.position += parts;
  state.clock_s = end_s;
  state.last_start_s = start_s;
  return true;
}

}  // namespace pipewright
