// What a rank keeps on its device at least while copies take activations away,
// by the times that its passes have in a plan of copies (sim/program/activation_plan.h): that of
// sim/program/pass_times.h, since bounds know what passes and hops take.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "sim/analysis/search/plan_bound.h"
#include "sim/analysis/search/plan_replay.h"
#include "sim/config/copy_rate.h"
#include "sim/memory/schedule_memory.h"
#include "sim/program/network_time.h"
#include "sim/schedule/core.h"
#include "sim/schedule/wiring.h"

namespace pipewright {
namespace {

// Bounds and plans take sums in another order; plans take times that differ by
// less as the same.
constexpr double kSameTimes = 1e-6;

// So many moments of a rank are looked at besides its fullest, all of them at
// least half as full.
constexpr int64_t kLooks = 16;

bool AreSame(double one, double other) {
  return std::abs(one - other) <= kSameTimes * std::max(one, other);
}

// Does the run take what the bounds say, and no more?
bool TakesThat(const std::vector<StageCosts>& costs,
               const std::vector<StageBound>& stages) {
  return std::equal(
      costs.begin(), costs.end(), stages.begin(), stages.end(),
      [](const StageCosts& own, const StageBound& bound) {
        const double full_s =
            own.backward_full_s > 0
                ? own.backward_full_s
                : own.backward_input_s + own.backward_weight_s;
        return AreSame(own.forward_s, bound.forward_s) &&
               AreSame(own.backward_input_s, bound.backward_input_s) &&
               AreSame(own.backward_weight_s, bound.backward_weight_s) &&
               AreSame(full_s, bound.backward_s());
      });
}

// Keeps when passes run.
struct TimesObserver {
  static constexpr bool kActive = true;
  std::vector<std::vector<std::pair<double, double>>>* times;
  void OnPass(int rank, int64_t position, Pass, double start_s, double end_s,
              bool) {
    (*times)[rank][position] = {start_s, end_s};
  }
  void OnTransfer(int, Pass, double, double) {}
};

}  // namespace

const PlanBounds::Links& PlanBounds::LinksOf(const PlanGroup& group,
                                             RunContext* context) {
  std::vector<int> key = {group.nodes,
                          group.tp,
                          group.cp,
                          group.ep,
                          group.pp,
                          group.dp,
                          group.microbatch_size,
                          static_cast<int>(group.recompute)};
  // What a refused run leaves unknown is unknown for its group alone, so that
  // it does not matter which group comes first.
  std::vector<int> own = key;
  own.insert(own.end(),
             {group.schedule, group.vpp, group.microbatches, group.layout});
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::vector<int>& each : {key, own}) {
      const auto found = links_.find(each);
      if (found != links_.end()) return *found->second;
    }
  }
  auto links = std::make_unique<Links>();
  PlanPoint point = {.group = group};
  if (group.dp * group.cp > 1) point.data_parallel = DataParallel::kDdp;
  absl::StatusOr<PreparedRun> run =
      Prepare(space_->CandidateOf(point), context);
  if (run.ok()) {
    const Network& network = run->network.links;
    const auto hop = [&](int from, int to) {
      if (from == to) return 0.0;
      if (network.cluster == nullptr) return network.hop_s;
      return SecondsOf(*network.cluster, FlowsBetween(network, 0, from, to),
                       run->lower.hop_bytes);
    };
    for (int rank = 0; rank < group.pp; ++rank) {
      const int next = (rank + 1) % group.pp;
      links->next_s.push_back(hop(rank, next));
      links->back_s.push_back(hop(next, rank));
    }
    links->is_exact = TakesThat(run->costs.passes.stages, Stages(group));
    links->copied_per_s =
        MostCopiedPerSecond(*std::move(run)) * (1 + kBoundRounding);
  } else {
    key = std::move(own);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return *links_.try_emplace(key, std::move(links)).first->second;
}

std::optional<PlanBounds::Times> PlanBounds::TimesOf(
    const Order& order, const std::vector<StageBound>& stages,
    const Links& links) {
  const Schedule& schedule = *order.schedule;
  const int pp = schedule.pp();
  // Delays of messages between neighbours alone.
  std::vector<double> delays;
  for (const WiredChannel& channel : order.wiring->channels) {
    const int ahead = (channel.to_rank - channel.from_rank + pp) % pp;
    if (ahead == 0) {
      delays.push_back(0);
    } else if (ahead == 1) {
      delays.push_back(links.next_s[channel.from_rank]);
    } else if (ahead == pp - 1) {
      delays.push_back(links.back_s[channel.to_rank]);
    } else {
      return std::nullopt;
    }
  }
  Times times;
  for (int rank = 0; rank < pp; ++rank) {
    times.emplace_back(schedule.order(rank).size());
  }
  TimesObserver observer = {&times};
  const std::vector<double> ends =
      Replayed(order, stages, 1, &delays, 0, 1, observer);
  if (ends.empty()) return std::nullopt;
  return times;
}

double PlanBounds::TimedLive(
    const Order& order, int rank,
    const std::vector<std::pair<double, double>>& times,
    const MemoryOfStages& stages, bool half, double copied_per_s,
    double enough) const {
  const Schedule& schedule = *order.schedule;
  const RankOrder& passes = schedule.order(rank);
  const auto size = static_cast<int64_t>(passes.size());
  const size_t vpp = schedule.vpp();
  const size_t lanes = vpp * schedule.directions;
  std::vector<const StageMemory*> of_lane;
  for (size_t lane = 0; lane < lanes; ++lane) {
    of_lane.push_back(stages[StageOf(order, rank, lane)]);
  }
  const auto lane_of = [&](Pass pass) {
    return static_cast<size_t>(pass.direction()) * vpp + pass.chunk();
  };
  const auto index_of = [&](Pass pass) {
    return static_cast<size_t>(pass.microbatch()) * lanes + lane_of(pass);
  };
  // [position] of the forward or first reader: that of the other, with their
  // blocks; -1: neither.
  std::vector<int64_t> other(size, -1);
  std::vector<int64_t> forward_at(
      static_cast<size_t>(schedule.microbatches) * lanes, -1);
  std::vector<double> levels(size, 0.0);
  double now = 0;
  double most = 0;
  int64_t fullest = 0;
  int64_t first_backward = size;
  for (int64_t position = 0; position < size;) {
    const int64_t behind =
        position + (passes[position].joint_with_next() ? 2 : 1);
    double inside = now;
    for (int64_t at = position; at < behind; ++at) {
      const Pass pass = passes[at];
      const StageMemory& stage = *of_lane[lane_of(pass)];
      int64_t& forward = forward_at[index_of(pass)];
      if (pass.kind() == PassKind::kForward) {
        forward = at;
      } else if (IsBackward(pass.kind())) {
        first_backward = std::min(first_backward, position);
        other[at] = forward;
        other[forward] = at;
      }
      const PassMemory* const peak = PeakOf(pass.kind(), stage, false);
      if (peak != nullptr) inside += static_cast<double>(peak->peak.total());
      now +=
          static_cast<double>(ChangeOf(pass.kind(), stage, false).activations);
    }
    levels[position] = inside;
    if (inside > most) {
      most = inside;
      fullest = position;
    }
    position = behind;
  }
  const double slack_s = kSameTimes * times.back().second;
  // Warm-ups run as late as their first backward allows.
  std::vector<double> begin_s(size);
  for (int64_t position = size - 1; position >= 0; --position) {
    begin_s[position] = times[position].first;
    if (position < first_backward && position + 1 < size) {
      begin_s[position] = std::max(
          begin_s[position], begin_s[position + 1] - (times[position].second -
                                                      times[position].first));
    }
  }
  const auto least_at = [&](int64_t moment) {
    const double until_s = begin_s[moment] + slack_s;
    const double from_s = times[moment].second - slack_s;
    const int64_t behind = moment + (passes[moment].joint_with_next() ? 2 : 1);
    double out_s = 0;
    double in_s = 0;
    double lane_s = -std::numeric_limits<double>::infinity();
    double largest = 0;
    std::vector<double> of_chunk(vpp, 0.0);
    const auto moved_of = [&](int64_t position) {
      return static_cast<double>(of_lane[lane_of(passes[position])]->away);
    };
    for (int64_t position = 0; position < moment; ++position) {
      if (passes[position].kind() != PassKind::kForward ||
          other[position] < behind) {
        continue;
      }
      const double moved = moved_of(position);
      of_chunk[passes[position].chunk()] += moved;
      largest = std::max(largest, moved);
      lane_s = std::max(lane_s, times[position].second);
      const double end_s = lane_s + moved / copied_per_s;
      out_s += std::max(0.0, std::min(end_s, until_s) - lane_s);
      lane_s = end_s;
    }
    lane_s = std::numeric_limits<double>::infinity();
    for (int64_t position = size - 1; position >= behind; --position) {
      if (!IsBackward(passes[position].kind()) || other[position] >= moment) {
        continue;
      }
      lane_s = std::min(lane_s, times[position].first);
      const double begin = lane_s - moved_of(position) / copied_per_s;
      in_s += std::max(0.0, lane_s - std::max(begin, from_s));
      lane_s = begin;
    }
    const double chosen =
        MostChosen(schedule, std::move(of_chunk), largest, half);
    if (std::isinf(copied_per_s)) return levels[moment] - chosen;
    return levels[moment] -
           std::min(chosen, std::min(out_s, in_s) * copied_per_s);
  };
  double least = least_at(fullest);
  if (least > enough) return least;
  std::vector<int64_t> full;
  for (int64_t position = 0; position < size; ++position) {
    if (levels[position] > most / 2) full.push_back(position);
  }
  const int64_t step = std::max<int64_t>(1, std::ssize(full) / kLooks);
  for (int64_t index = 0; index < std::ssize(full); index += step) {
    least = std::max(least, least_at(full[index]));
    if (least > enough) break;
  }
  return least;
}

// Most bytes that copies are chosen for, of what stands ready to be taken away
// by chunks.
double PlanBounds::MostChosen(const Schedule& schedule,
                              std::vector<double> of_chunk, double largest,
                              bool half) {
  if (half && of_chunk.size() > 1) {
    std::sort(of_chunk.rbegin(), of_chunk.rend());
    of_chunk.resize((of_chunk.size() + 1) / 2);
  }
  double bytes = 0;
  for (const double each : of_chunk) bytes += each;
  if (half && schedule.vpp() == 1) {
    const double all =
        static_cast<double>(schedule.microbatches) * schedule.directions;
    bytes = std::min(bytes, std::ceil(all / 2) * largest);
  }
  return bytes;
}

}  // namespace pipewright
