// ZeroPP: microbatches in scheduling units; inside a unit all of them run
// breadth first through the chunks of a rank, so that with fully sharded data
// parallelism a chunk's parameters are gathered once a unit and direction, and
// its gradients scattered once a unit. A boundary between units stands where a
// rank has run B of all that it has forwarded.
//
// A reconstruction: the paper's own order was not available (below).
#include <algorithm>
#include <cstdint>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/params.h"
#include "sim/schedule/registry.h"

namespace pipewright::zeropp {
namespace {

// The greedy order in scheduling units: loop placement; a rank takes B before F
// before W; forwards of a unit go by chunk upwards, backwards by chunk
// downwards; no forward of a unit before all B of the units before it on that
// rank.
//
// Planned on a grid where every pass takes one slot and hops are free, rank
// after rank in the order of their clocks (the last rank first where they are
// equal). A rank that finds nothing to do rests until all do; so with one
// chunk it may run its forwards before backwards that would be there already.

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

// Adds the passes of all ranks for units of `unit` microbatches; the last one
// may be shorter.
void AddUnitOrders(const ScheduleParams& params, int unit,
                   ScheduleBuilder& builder) {
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{3} * params.vpp * params.microbatches);
  }
  ZeroPpPlanner(params, unit, builder).Run();
}

constexpr char kName[] = "zeropp";

Schedule BuildUnits(const ScheduleParams& params, int unit) {
  ScheduleBuilder builder(kName, Placement::Loop(params.pp, params.vpp),
                          params.microbatches);
  AddUnitOrders(params, unit, builder);
  Schedule schedule = std::move(builder).Finish();
  schedule.unit = unit;
  return schedule;
}

// Largest of all ranks, in the unit of peak_activations.
double Peak(const Schedule& schedule, double held_until_weight) {
  double peak = 0;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    int64_t whole = 0;
    int64_t weight_part = 0;
    for (const Pass pass : schedule.order(rank)) {
      whole += pass.kind() == PassKind::kForward;
      whole -= pass.kind() == PassKind::kBackwardInput;
      weight_part += pass.kind() == PassKind::kBackwardInput;
      weight_part -= pass.kind() == PassKind::kBackwardWeight;
      peak = std::max(peak, whole + held_until_weight * weight_part);
    }
  }
  return peak / schedule.vpp();
}

// 2p-1 microbatches are the fewest that leave no bubble on several chunks.
int LargestUnit(const ScheduleParams& params) {
  return std::min(2 * params.pp - 1, params.microbatches);
}

absl::StatusOr<int> GivenUnit(const ScheduleParams& params) {
  return IntParam(params, "unit", LargestUnit(params), 1, params.microbatches);
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  PW_ASSIGN_OR_RETURN(int unit, GivenUnit(params));
  Schedule schedule = BuildUnits(params, unit);
  if (params.own.count("unit") > 0 || !params.max_activations) return schedule;
  // A unit is held whole. Where even one microbatch is too much, the caller
  // sees the peak.
  const double limit = *params.max_activations;
  unit = std::min(unit, std::max(1, static_cast<int>(limit)) + 1);
  while (unit > 1 && Peak(schedule, params.costs.held_until_weight) > limit) {
    schedule = BuildUnits(params, --unit);
  }
  return schedule;
}

bool FullUnits(const ScheduleParams& params) {
  const auto unit = GivenUnit(params);
  return params.vpp >= 2 && unit.ok() && *unit == 2 * params.pp - 1 &&
         params.microbatches % *unit == 0 && !params.max_activations &&
         params.costs.equal_without_hop();
}

constexpr char kSource[] =
    "arXiv 2402.03791 has zero bubble at U = 2p-1, from memory; measured on "
    "this order; v >= 2, U | m, F = B = W, no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "breadth first in units of microbatches, W fills "
               "(reconstruction)",
    .source = "ZeroPP, arXiv 2402.03791; reconstruction, not the paper's own "
              "order",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {{"unit", "2*pp-1, fewer where --max-activations asks for it",
                "1..microbatches",
                "microbatches that share a gather of a chunk's parameters"}},
    .build = Build,
    .claims =
        {
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "0",
             .source = kSource,
             .domain = FullUnits,
             .value = [](const ScheduleParams&, int) { return 0.0; }},
            {.metric = Claim::Metric::kBubbleGlobal,
             .formula = "(p-1)F/v",
             .source = kSource,
             .domain = FullUnits,
             .value =
                 [](const ScheduleParams& params, int) {
                   return (params.pp - 1) * params.costs.forward / params.vpp;
                 }},
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "U, counted until B",
             .source = "derived from the rule",
             .domain =
                 [](const ScheduleParams& params) {
                   return params.costs.held_until_weight == 0;
                 },
             .value = [](const ScheduleParams& params, int) -> double {
               return GivenUnit(params).value_or(params.microbatches);
             }},
        },
});

}  // namespace
}  // namespace pipewright::zeropp
