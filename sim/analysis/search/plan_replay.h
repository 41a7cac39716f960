// The longest path through an order with the times of bounds. For sim/analysis/search
// only.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/analysis/search/plan_bound.h"
#include "sim/schedule/core.h"
#include "sim/schedule/rank_visits.h"
#include "sim/schedule/wiring.h"

namespace pipewright {

// Ends of all ranks, passes taking `factor` times what `stages` say and
// messages `delays` ([channel]; null: `hop_s`); empty where ranks wait for each
// other.
template <class Observer>
std::vector<double> PlanBounds::Replayed(const Order& order,
                                         const std::vector<StageBound>& stages,
                                         double factor,
                                         const std::vector<double>* delays,
                                         double hop_s, double pair_factor,
                                         Observer& observer) {
  const Schedule& schedule = *order.schedule;
  const Wiring& wiring = *order.wiring;
  std::vector<std::vector<ReplayLane>> lanes(schedule.pp());
  std::vector<ReplayRank> ranks(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const std::vector<WiredLane>& wired = wiring.lanes[rank];
    lanes[rank].resize(wired.size());
    for (size_t lane = 0; lane < wired.size(); ++lane) {
      if (wired[lane].stage < 0) continue;
      const PassKind kind = Pass::KindOf(lane);
      double seconds = stages[wired[lane].stage].SecondsOf(kind);
      // R passes may take something off the backward.
      if (order.recomputes && kind != PassKind::kForward &&
          kind != PassKind::kBackwardWeight) {
        seconds = std::max(0.0, seconds - stages[wired[lane].stage].forward_s);
      }
      const int32_t output = wired[lane].output;
      lanes[rank][lane] = {.seconds = factor * seconds,
                           .output_delay_s = delays != nullptr && output >= 0
                                                 ? (*delays)[output]
                                                 : hop_s,
                           .input = wired[lane].input,
                           .output = output};
    }
    ranks[rank].order = schedule.order(rank).data();
    ranks[rank].lanes = lanes[rank].data();
  }
  ReplayCore core(std::move(ranks), static_cast<int>(wiring.channels.size()),
                  nullptr, pair_factor);
  const auto size = [&](int rank) {
    return static_cast<int64_t>(schedule.order(rank).size());
  };
  RankVisits::Along(schedule.pp(), wiring.channels).Run([&](int rank) {
    const int64_t before = core.rank(rank).position;
    core.Advance(rank, size(rank), observer);
    return core.rank(rank).position != before;
  });
  std::vector<double> ends;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    if (core.rank(rank).position < size(rank)) return {};
    ends.push_back(core.rank(rank).clock_s);
  }
  return ends;
}

}  // namespace pipewright
