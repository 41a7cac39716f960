// Hanayo: one pipeline in waves; the stages walk to and fro over the ranks, w
// times with 2w chunks a rank. The placement is the paper's (as remembered);
// the order is a RECONSTRUCTION, for no reference order was at hand: WavePlan.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/base/nearest.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::hanayo {
namespace {

// An order for stages that walk to and fro over the ranks, by list scheduling
// in slots: a chunk's forward takes one, its full backward two, hops none. Our
// own rule, not a published one:
//   - a rank that has both runs a forward and a backward in turn;
//   - of the forwards the deepest stage first, so that waves turn early;
//   - of the backwards the stage nearest to the end of the backward first, but
//     with several waves and more microbatches than ranks the one farthest
//     from it;
//   - then the lowest microbatch.

// A pass that a rank could run, best first: (priority, microbatch, stage).
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
  int in_flight_ = 0;  // of them, those whose last backward has not ended
  ScheduleBuilder& builder_;
};

// Appends all passes of all ranks. At most `most_in_flight` microbatches, at
// least 1, are between their first forward and their last backward.
void AddWaveOrder(const Placement& placement, int microbatches,
                  int most_in_flight, ScheduleBuilder& builder) {
  WavePlan(placement, microbatches, most_in_flight, builder).Run();
}

constexpr char kName[] = "hanayo";

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  if (params.vpp % 2 != 0) {
    return BadSize(
        "strategy.vpp", params.vpp, [](int vpp) { return vpp % 2 == 0; },
        "schedule hanayo: 2w chunks a rank for w waves");
  }
  const Placement placement = Placement::Wave(params.pp, params.vpp);
  ScheduleBuilder builder(kName, placement, params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{2} * params.vpp * params.microbatches);
  }
  // A microbatch in flight takes at most one unit of memory on a rank.
  const double limit = params.max_activations.value_or(params.microbatches);
  const double in_flight = std::clamp(limit, 1.0, 1.0 * params.microbatches);
  AddWaveOrder(placement, params.microbatches, static_cast<int>(in_flight),
               builder);
  return std::move(builder).Finish();
}

bool IsOneWave(const ScheduleParams& params) {
  return params.vpp == 2 && params.microbatches >= 2 * params.pp &&
         !params.max_activations.has_value() &&
         params.costs.equal_without_hop();
}

// No order of these stages can save this: the last rank waits for its first
// forward, and after its last backward the others still have to run theirs.
double LeastBubble(const ScheduleParams& params, int) {
  return (params.pp - 1) * params.costs.work() / params.vpp;
}

const RegisterSchedule kRow({
    .name = kName,
    .summary = "waves over the ranks, 2w chunks a rank for w waves (--vpp 2w); "
               "order reconstructed",
    .source = "placement of Hanayo, arXiv 2308.15762; the order is a "
              "reconstruction: list scheduling with B+W = 2F",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .placement = WavePlacement,
    .claims =
        {
            {.metric = Claim::Metric::kBubbleGlobal,
             .formula = "(p-1)(F+B+W)/(2w)",
             .source = "lower bound of any order; met in replays by w = 1, "
                       "m >= 2p, F = B = W, no hops",
             .domain = IsOneWave,
             .value = LeastBubble},
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "min(m, (3p-1)/2)",
             .source = "counted in our orders, w = 1",
             .domain =
                 [](const ScheduleParams& params) { return params.vpp == 2; },
             .value = [](const ScheduleParams& params, int) -> double {
               return std::min(1.0 * params.microbatches,
                               (3 * params.pp - 1) / 2.0);
             }},
        },
});

}  // namespace
}  // namespace pipewright::hanayo
