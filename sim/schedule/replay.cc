#include "sim/schedule/replay.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "sim/schedule/core.h"
#include "sim/schedule/rank_visits.h"
#include "sim/schedule/verify.h"
#include "sim/schedule/wiring.h"

namespace pipewright {
namespace {

double SecondsOf(PassKind kind, const StageTimes& times) {
  switch (kind) {
    case PassKind::kForward:
    case PassKind::kRecompute:
      return times.forward;
    case PassKind::kBackwardInput:
      return times.backward_input;
    case PassKind::kBackwardWeight:
      return times.backward_weight;
    case PassKind::kBackwardFull:
      return times.backward_input + times.backward_weight;
    default:
      return 0;
  }
}

}  // namespace

absl::StatusOr<ReplayTimes> Replay(const Schedule& schedule,
                                   const PlanCosts& costs) {
  const Wiring wiring = WireSchedule(schedule);
  std::vector<std::vector<ReplayLane>> lanes(schedule.pp());
  std::vector<ReplayRank> ranks(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const std::vector<WiredLane>& wired = wiring.lanes[rank];
    lanes[rank].resize(wired.size());
    for (size_t lane = 0; lane < wired.size(); ++lane) {
      const auto kind = Pass::KindOf(lane);
      const int stage = wired[lane].stage;
      double seconds =
          costs.stages.empty() || stage < 0
              ? SecondsOf(kind, {.forward = costs.forward,
                                 .backward_input = costs.backward_input,
                                 .backward_weight = costs.backward_weight}) /
                    schedule.vpp()
              : SecondsOf(kind, costs.stages[stage]);
      if (kind == PassKind::kRecompute && stage >= 0 &&
          !costs.recompute.empty()) {
        seconds = costs.recompute[stage];
      }
      lanes[rank][lane] = {.seconds = seconds / schedule.slices,
                           .output_delay_s = costs.hop,
                           .input = wired[lane].input,
                           .output = wired[lane].output};
    }
    ranks[rank].order = schedule.order(rank).data();
    ranks[rank].lanes = lanes[rank].data();
  }
  ReplayCore core(
      std::move(ranks), static_cast<int>(wiring.channels.size()), nullptr,
      costs.pair_factor,
      costs.slice_factor.empty() ? nullptr : costs.slice_factor.data());

  ReplayTimes times;
  times.first_start.assign(schedule.pp(), 0);
  times.last_end.assign(schedule.pp(), 0);
  NullObserver observer;
  int ended = 0;
  RankVisits visits = RankVisits::Along(schedule.pp(), wiring.channels);
  visits.Run([&](int rank) {
    ReplayRank& state = core.rank(rank);
    const auto size = static_cast<int64_t>(schedule.order(rank).size());
    const int64_t before = state.position;
    if (before == size) return false;
    if (before == 0) {
      core.Advance(rank, 1, observer);
      if (state.position > 0) times.first_start[rank] = state.last_start_s;
    }
    if (state.position > 0) core.Advance(rank, size, observer);
    times.last_end[rank] = state.clock_s;
    ended += state.position == size ? 1 : 0;
    return state.position != before;
  });
  times.visits = visits.visits();
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    ended += schedule.order(rank).empty() ? 1 : 0;
  }
  if (ended < schedule.pp()) {
    std::vector<int64_t> positions;
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      positions.push_back(core.rank(rank).position);
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "the schedule deadlocks:\n", BlockedGrid(schedule, positions)));
  }
  times.span_global =
      *std::max_element(times.last_end.begin(), times.last_end.end()) -
      *std::min_element(times.first_start.begin(), times.first_start.end());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    times.span_per_rank = std::max(
        times.span_per_rank, times.last_end[rank] - times.first_start[rank]);
  }
  return times;
}

}  // namespace pipewright
