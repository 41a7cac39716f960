#include "sim/schedule/zb_v_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "sim/base/check.h"

namespace pipewright {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// Passes of a leg are ahead on one rank of those on the next by no more than
// a rank's memory: as many ends are still asked for.
int RingSize(int microbatches, double limit_chunks) {
  const double window = std::min<double>(microbatches, limit_chunks + 2);
  return static_cast<int>(std::bit_ceil(static_cast<uint32_t>(window)));
}

}  // namespace

ZbVPlanner::ZbVPlanner(const ScheduleParams& params, double limit)
    : pp_(params.pp),
      microbatches_(params.microbatches),
      held_(params.costs.held_until_weight),
      limit_(2 * limit * (1 + kLimitRounding)),
      ticks_(TicksOf(params)),
      ring_mask_(RingSize(params.microbatches, limit_) - 1),
      legs_(params.pp) {
  PW_CHECK(limit >= pp_);
  for (const Leg leg : {kDown, kUp}) {
    forward_ends_[leg].resize((ring_mask_ + size_t{1}) * pp_);
    backward_ends_[leg].resize((ring_mask_ + size_t{1}) * pp_);
  }
  best_ = Search();
}

ZbVPlanner::Plan ZbVPlanner::Search() {
  Plan best;
  best.bubble = kNone;
  for (const bool fill_backward : {true, false}) {
    for (const bool fill_forward : {true, false}) {
      Choice choice = {fill_backward, fill_forward,
                       std::vector<int64_t>(pp_, 0)};
      int64_t most = kNone;
      while (Run(choice, most)) {
        most = largest_bubble_;
        if (most < best.bubble) best = {most, peak_chunks_, choice};
        for (int rank = 0; rank < pp_; ++rank) {
          choice.spare[rank] = most - ranks_[rank].bubble;
        }
      }
    }
  }
  return best;
}

void ZbVPlanner::Record(ScheduleBuilder* builder) {
  for (int rank = 0; rank < pp_; ++rank) {
    builder->Reserve(rank, int64_t{6} * microbatches_);
  }
  weights_.assign(pp_, Fifo<Pass>());
  builder_ = builder;
  PW_CHECK(Run(best_.choice, kNone));
  builder_ = nullptr;
}

bool ZbVPlanner::Run(const Choice& choice, int64_t most) {
  choice_ = &choice;
  largest_bubble_ = 0;
  peak_chunks_ = 0;
  ranks_.assign(pp_, Rank());
  for (int rank = 0; rank < pp_; ++rank) {
    ranks_[rank].spare = choice.spare[rank];
  }
  StartForwards();
  WarmUp();
  for (int64_t step = 0; step < int64_t{2} * microbatches_; ++step) {
    if (largest_bubble_ >= most) return false;
    PlaceBackwards();
    PlaceForwards();
  }
  for (int rank = 0; rank < pp_; ++rank) {
    while (ranks_[rank].pending() > 0) PlaceWeight(rank);
  }
  return largest_bubble_ < most;
}

// Down and back up once; while F0 is on its way up, more F go down.
void ZbVPlanner::StartForwards() {
  for (int rank = 0; rank < pp_; ++rank) PlaceForward(rank, kDown);
  for (int rank = pp_ - 1; rank >= 0; --rank) {
    const Rank& state = ranks_[rank];
    while (rank < pp_ - 1 && state.forwards[kDown] < microbatches_ &&
           Memory(state) + 2 + 2 * rank <= limit_ &&
           state.clock + ticks_.forward <= ForwardArrival(rank, kUp)) {
      for (int upper = 0; upper <= rank; ++upper) PlaceForward(upper, kDown);
    }
    PlaceForward(rank, kUp);
  }
}

// Every rank gets as many F as the one in front of it, the legs in turn.
void ZbVPlanner::WarmUp() {
  Leg leg = kDown;
  for (int rank = 1; rank < pp_; ++rank) {
    const Rank& front = ranks_[rank - 1];
    const Rank& state = ranks_[rank];
    while (state.all_forwards() < front.all_forwards() ||
           (state.forwards[kUp] <= front.forwards[kUp] &&
            front.forwards[kUp] < microbatches_)) {
      for (int lower = pp_ - 1; lower >= rank; --lower) {
        if (ranks_[lower].forwards[leg] < microbatches_) {
          PlaceForward(lower, leg);
        }
      }
      leg = leg == kDown ? kUp : kDown;
    }
  }
}

// One B a rank.
void ZbVPlanner::PlaceBackwards() {
  for (int rank = 0; rank < pp_; ++rank) {
    const std::array<int, 2>& placed = ranks_[rank].backwards;
    const bool up = placed[kUp] < placed[kDown] &&
                    (rank == pp_ - 1 || placed[kDown] == microbatches_ ||
                     placed[kUp] < ranks_[rank + 1].backwards[kUp]);
    legs_[rank] = up ? kUp : kDown;
  }
  for (int rank = pp_ - 1; rank >= 0; --rank) {
    if (legs_[rank] != kUp) continue;
    Fill(rank, BackwardArrival(rank, kUp), true);
    PlaceBackward(rank, kUp);
  }
  for (int rank = 0; rank < pp_; ++rank) {
    if (legs_[rank] != kDown) continue;
    Fill(rank, BackwardArrival(rank, kDown), choice_->fill_backward);
    PlaceBackward(rank, kDown);
  }
}

// At most one F a rank.
void ZbVPlanner::PlaceForwards() {
  for (int rank = 0; rank < pp_; ++rank) {
    const Rank& state = ranks_[rank];
    const std::array<int, 2>& placed = state.forwards;
    if (placed[kUp] == microbatches_) continue;
    Leg leg = kDown;
    if (placed[kUp] < placed[kDown]) {
      if (rank == pp_ - 1 || placed[kUp] < ranks_[rank + 1].forwards[kUp]) {
        leg = kUp;
      } else if (placed[kDown] == microbatches_ ||
                 (rank > 0 &&
                  placed[kDown] >= ranks_[rank - 1].forwards[kDown])) {
        continue;
      }
    }
    while (Memory(state) + 1 > limit_) PlaceWeight(rank);
    Fill(rank, ForwardArrival(rank, leg), choice_->fill_forward);
    PlaceForward(rank, leg);
  }
}

// Chunks in flight, split counting.
double ZbVPlanner::Memory(const Rank& state) const {
  return state.all_forwards() - state.all_backwards() + held_ * state.pending();
}

// When pass `number` of `leg` can start on `rank`; 0 where its input is of the
// same rank.
int64_t ZbVPlanner::Arrival(const Ends& ends, int number, int rank,
                            Leg leg) const {
  const int source = leg == kDown ? rank - 1 : rank + 1;
  if (source < 0 || source == pp_) return 0;
  return ends[leg][static_cast<size_t>(number & ring_mask_) * pp_ + source] +
         ticks_.hop;
}

int64_t ZbVPlanner::ForwardArrival(int rank, Leg leg) const {
  return Arrival(forward_ends_, ranks_[rank].forwards[leg], rank, leg);
}

int64_t ZbVPlanner::BackwardArrival(int rank, Leg leg) const {
  return Arrival(backward_ends_, ranks_[rank].backwards[leg], rank, leg);
}

// Idle time counts from the rank's first F on.
void ZbVPlanner::WaitUntil(Rank& state, int64_t time) {
  if (time <= state.clock) return;
  if (state.all_forwards() > 0) {
    state.bubble += time - state.clock;
    largest_bubble_ = std::max(largest_bubble_, state.bubble);
  }
  state.clock = time;
}

// W until `arrival`; one that is too long for what is left only where the wait
// would make the largest bubble larger, of this run or of the one before.
void ZbVPlanner::Fill(int rank, int64_t arrival, bool small_gaps) {
  const Rank& state = ranks_[rank];
  while (state.pending() > 0 &&
         arrival >= state.clock + ticks_.backward_weight) {
    PlaceWeight(rank);
  }
  if (small_gaps && state.pending() > 0 &&
      arrival - state.clock >
          std::max(largest_bubble_, state.spare) - state.bubble) {
    PlaceWeight(rank);
  }
}

void ZbVPlanner::PlaceForward(int rank, Leg leg) {
  Rank& state = ranks_[rank];
  const int number = state.forwards[leg];
  WaitUntil(state, ForwardArrival(rank, leg));
  state.clock += ticks_.forward;
  forward_ends_[leg][static_cast<size_t>(number & ring_mask_) * pp_ + rank] =
      state.clock;
  ++state.forwards[leg];
  peak_chunks_ = std::max(peak_chunks_, Memory(state));
  if (builder_ == nullptr) return;
  builder_->Add(rank, PassKind::kForward, number, leg == kDown ? 0 : 1);
}

void ZbVPlanner::PlaceBackward(int rank, Leg leg) {
  Rank& state = ranks_[rank];
  const int number = state.backwards[leg];
  WaitUntil(state, BackwardArrival(rank, leg));
  state.clock += ticks_.backward_input;
  backward_ends_[leg][static_cast<size_t>(number & ring_mask_) * pp_ + rank] =
      state.clock;
  ++state.backwards[leg];
  if (builder_ == nullptr) return;
  const int chunk = leg == kDown ? 1 : 0;
  builder_->Add(rank, PassKind::kBackwardInput, number, chunk);
  weights_[rank].push_back(Pass(PassKind::kBackwardWeight, number, chunk));
}

void ZbVPlanner::PlaceWeight(int rank) {
  Rank& state = ranks_[rank];
  PW_CHECK(state.pending() > 0);
  state.clock += ticks_.backward_weight;
  ++state.weights;
  if (builder_ == nullptr) return;
  builder_->Add(rank, weights_[rank].front());
  weights_[rank].pop_front();
}

}  // namespace pipewright
