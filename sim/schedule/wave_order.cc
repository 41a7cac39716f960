#include "sim/schedule/wave_order.h"

#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <vector>

namespace pipewright {
namespace {

// What a rank could run, best first: (priority, microbatch, stage).
using Ready = std::tuple<int, int, int>;
using ReadyQueue =
    std::priority_queue<Ready, std::vector<Ready>, std::greater<Ready>>;

class WavePlan {
 public:
  WavePlan(const Placement& placement, int microbatches, int most_in_flight,
           ScheduleBuilder& builder)
      : placement_(placement),
        microbatches_(microbatches),
        late_first_(placement.vpp() > 2 && microbatches > placement.pp()),
        most_in_flight_(most_in_flight),
        ranks_(placement.pp()),
        builder_(builder) {}

  void Run() {
    TryRank(0, 0);
    std::vector<Event> now;
    while (!events_.empty()) {
      const int64_t slot = events_.top().end;
      now.clear();
      while (!events_.empty() && events_.top().end == slot) {
        now.push_back(events_.top());
        events_.pop();
      }
      // All results of a slot are there before anything starts in it.
      for (const Event& event : now) Finish(event);
      for (const Event& event : now) {
        const int stage = event.stage;
        TryRank(placement_.RankOf(stage), slot);
        if (event.forward && stage + 1 < placement_.stages()) {
          TryRank(placement_.RankOf(stage + 1), slot);
        } else if (!event.forward && stage > 0) {
          TryRank(placement_.RankOf(stage - 1), slot);
        }
      }
    }
  }

 private:
  struct Event {
    int64_t end;
    int stage, microbatch;
    bool forward;
    bool operator<(const Event& other) const {
      return std::tie(other.end, other.stage, other.microbatch) <
             std::tie(end, stage, microbatch);
    }
  };
  struct Rank {
    ReadyQueue forwards, backwards;
    bool busy = false;
    bool ran_forward = false;
  };

  void Finish(const Event& event) {
    ranks_[placement_.RankOf(event.stage)].busy = false;
    if (event.forward && event.stage + 1 < placement_.stages()) {
      const int stage = event.stage + 1;
      // The deepest first.
      ranks_[placement_.RankOf(stage)].forwards.push(
          {-stage, event.microbatch, stage});
    } else if (event.forward || event.stage > 0) {
      const int stage = event.forward ? event.stage : event.stage - 1;
      ranks_[placement_.RankOf(stage)].backwards.push(
          {late_first_ ? -stage : stage, event.microbatch, stage});
    } else {
      --in_flight_;
    }
  }

  void TryRank(int index, int64_t slot) {
    Rank& rank = ranks_[index];
    if (rank.busy) return;
    const bool enters = index == 0 && rank.forwards.empty() &&
                        entered_ < microbatches_ &&
                        in_flight_ < most_in_flight_;
    const bool forward = enters || !rank.forwards.empty();
    if (!forward && rank.backwards.empty()) return;
    rank.ran_forward = forward && (rank.backwards.empty() || !rank.ran_forward);
    rank.busy = true;
    if (rank.ran_forward && enters) {
      ++in_flight_;
      return Start(index, true, 0, entered_++, slot);
    }
    ReadyQueue& queue = rank.ran_forward ? rank.forwards : rank.backwards;
    const auto [priority, microbatch, stage] = queue.top();
    queue.pop();
    Start(index, rank.ran_forward, stage, microbatch, slot);
  }

  void Start(int rank, bool forward, int stage, int microbatch, int64_t slot) {
    builder_.Add(rank, forward ? PassKind::kForward : PassKind::kBackwardFull,
                 microbatch, placement_.ChunkOf(stage));
    events_.push({slot + (forward ? 1 : 2), stage, microbatch, forward});
  }

  const Placement& placement_;
  const int microbatches_;
  const bool late_first_;
  const int most_in_flight_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event> events_;
  int entered_ = 0;    // microbatches that stage 0 has begun
  int in_flight_ = 0;  // those of them whose last backward has not ended
  ScheduleBuilder& builder_;
};

}  // namespace

void AddWaveOrder(const Placement& placement, int microbatches,
                  int most_in_flight, ScheduleBuilder& builder) {
  WavePlan(placement, microbatches, most_in_flight, builder).Run();
}

}  // namespace pipewright
