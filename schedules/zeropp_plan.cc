#include "schedules/zeropp_plan.h"

#include <algorithm>
#include <cstdint>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/base/check.h"

namespace pipewright {
namespace {

constexpr int64_t kNotYet = -1;

// A pass that a rank could run. Smaller is better: earlier, then B before F
// before W, then by unit, chunk and microbatch.
struct NextPass {
  int64_t start = 0;
  PassKind kind = PassKind::kForward;
  int chunk = 0;
  int microbatch = 0;
  // Kind, unit, place of the chunk.
  std::tuple<int, int, int> rank_key;

  bool operator<(const NextPass& other) const {
    return std::tie(start, rank_key, microbatch) <
           std::tie(other.start, other.rank_key, other.microbatch);
  }
};

// The next microbatch of each kind, by chunk: passes of one kind and stage run
// in the order of the microbatches.
struct RankState {
  int64_t clock = 0;
  int64_t backwards = 0;
  std::vector<int> forward, backward, weight;
};

class ZeroPpPlanner {
 public:
  ZeroPpPlanner(const ScheduleParams& params, int unit,
                ScheduleBuilder& builder)
      : pp_(params.pp),
        vpp_(params.vpp),
        microbatches_(params.microbatches),
        unit_(unit),
        builder_(builder),
        ranks_(pp_),
        forward_end_(Cells(), kNotYet),
        backward_end_(Cells(), kNotYet) {
    for (RankState& rank : ranks_) {
      rank.forward.assign(vpp_, 0);
      rank.backward.assign(vpp_, 0);
      rank.weight.assign(vpp_, 0);
    }
  }

  void Run() {
    // Earliest clock first, then the highest rank.
    std::priority_queue<std::pair<int64_t, int>> awake;
    const auto wake = [&](int rank) {
      awake.push({-ranks_[rank].clock, rank});
    };
    for (int64_t left = 3 * static_cast<int64_t>(Cells()); left > 0;) {
      if (awake.empty()) {
        PW_CHECK(left < left_when_woken_);
        left_when_woken_ = left;
        for (int rank = 0; rank < pp_; ++rank) wake(rank);
      }
      const int rank = awake.top().second;
      awake.pop();
      NextPass best;
      if (!Best(rank, &best)) continue;
      if (best.start > ranks_[rank].clock) {
        ranks_[rank].clock = best.start;
      } else {
        Commit(rank, best);
        --left;
      }
      wake(rank);
    }
  }

 private:
  size_t Cells() const {
    return static_cast<size_t>(pp_) * vpp_ * microbatches_;
  }
  size_t Cell(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * microbatches_ + microbatch;
  }

  bool Best(int rank, NextPass* best) const {
    const RankState& state = ranks_[rank];
    bool found = false;
    const auto offer = [&](PassKind kind, int priority, int chunk, int place,
                           int microbatch, int64_t ready) {
      const NextPass candidate = {std::max(state.clock, ready),
                                  kind,
                                  chunk,
                                  microbatch,
                                  {priority, microbatch / unit_, place}};
      if (found && !(candidate < *best)) return;
      *best = candidate;
      found = true;
    };
    for (int chunk = 0; chunk < vpp_; ++chunk) {
      const int stage = chunk * pp_ + rank;
      const int back = vpp_ - 1 - chunk;
      const int backward = state.backward[chunk];
      if (backward < state.forward[chunk]) {
        const int64_t ready = stage == pp_ * vpp_ - 1
                                  ? 0
                                  : backward_end_[Cell(stage + 1, backward)];
        if (ready != kNotYet) {
          offer(PassKind::kBackwardInput, 0, chunk, back, backward, ready);
        }
      }
      const int forward = state.forward[chunk];
      if (forward < microbatches_ &&
          state.backwards >= int64_t{forward / unit_} * unit_ * vpp_) {
        const int64_t ready =
            stage == 0 ? 0 : forward_end_[Cell(stage - 1, forward)];
        if (ready != kNotYet) {
          offer(PassKind::kForward, 1, chunk, chunk, forward, ready);
        }
      }
      const int weight = state.weight[chunk];
      if (weight < backward) {
        offer(PassKind::kBackwardWeight, 2, chunk, back, weight, 0);
      }
    }
    return found;
  }

  void Commit(int rank, const NextPass& pass) {
    RankState& state = ranks_[rank];
    const size_t cell = Cell(pass.chunk * pp_ + rank, pass.microbatch);
    builder_.Add(rank, pass.kind, pass.microbatch, pass.chunk);
    ++state.clock;
    if (pass.kind == PassKind::kForward) {
      ++state.forward[pass.chunk];
      forward_end_[cell] = state.clock;
    } else if (pass.kind == PassKind::kBackwardInput) {
      ++state.backward[pass.chunk];
      ++state.backwards;
      backward_end_[cell] = state.clock;
    } else {
      ++state.weight[pass.chunk];
    }
  }

  const int pp_, vpp_, microbatches_, unit_;
  ScheduleBuilder& builder_;
  std::vector<RankState> ranks_;
  std::vector<int64_t> forward_end_, backward_end_;  // [stage][microbatch]
  int64_t left_when_woken_ = INT64_MAX;
};

}  // namespace

void AddUnitOrders(const ScheduleParams& params, int unit,
                   ScheduleBuilder& builder) {
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{3} * params.vpp * params.microbatches);
  }
  ZeroPpPlanner(params, unit, builder).Run();
}

}  // namespace pipewright
