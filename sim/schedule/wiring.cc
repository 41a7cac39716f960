#include "sim/schedule/wiring.h"

namespace pipewright {
namespace {

// Adds the channel that the passes `kinds` of `stage` feed, when the stage
// `next` that takes it up is on another rank.
void Connect(const Schedule& schedule, int direction, int stage, int next,
             bool gradient, Wiring* wiring) {
  const Placement& placement = schedule.placement;
  const int from = placement.RankOf(stage, direction);
  const int to = placement.RankOf(next, direction);
  if (from == to) return;
  const auto channel = static_cast<int32_t>(wiring->channels.size());
  wiring->channels.push_back({.gradient = gradient,
                              .from_rank = from,
                              .to_rank = to,
                              .stage = stage,
                              .direction = direction});
  for (int kind = 0; kind < kNumPassKinds; ++kind) {
    const auto pass_kind = static_cast<PassKind>(kind);
    const bool carries =
        gradient ? IsBackward(pass_kind) : pass_kind == PassKind::kForward;
    if (!carries) continue;
    wiring
        ->lanes[from]
               [Pass::LaneOf(pass_kind, placement.ChunkOf(stage), direction)]
        .output = channel;
    wiring
        ->lanes[to][Pass::LaneOf(pass_kind, placement.ChunkOf(next), direction)]
        .input = channel;
  }
}

}  // namespace

Wiring WireSchedule(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  Wiring wiring;
  wiring.lanes.assign(schedule.pp(),
                      std::vector<WiredLane>(Pass::LaneCount(schedule.vpp())));
  for (int direction = 0; direction < schedule.directions; ++direction) {
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      const int rank = placement.RankOf(stage, direction);
      for (int kind = 0; kind < kNumPassKinds; ++kind) {
        wiring
            .lanes[rank][Pass::LaneOf(static_cast<PassKind>(kind),
                                      placement.ChunkOf(stage), direction)]
            .stage = stage;
      }
    }
    for (int stage = 0; stage + 1 < schedule.stages(); ++stage) {
      Connect(schedule, direction, stage, stage + 1, false, &wiring);
      if (schedule.backward != BackwardRule::kChain) continue;
      Connect(schedule, direction, stage + 1, stage, true, &wiring);
    }
  }
  return wiring;
}

}  // namespace pipewright
