#include "sim/offload/least_levels.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "sim/base/status.h"
#include "sim/offload/pass_times.h"
#include "sim/offload/rank_plan.h"

namespace pipewright {
namespace {

// Plans take times that differ by less as the same (rank_plan.cc).
constexpr double kSlackOfPlans = 1e-6;

// One copy on a lane of its own direction.
struct LaneCopy {
  double from_s = 0;  // not before
  double seconds = 0;
};

// How long a lane is busy with them up to `until_s` at most.
double BusySeconds(std::vector<LaneCopy> copies, double until_s) {
  std::sort(copies.begin(), copies.end(),
            [](const LaneCopy& one, const LaneCopy& other) {
              return one.from_s < other.from_s;
            });
  double busy_s = 0;
  double lane_s = -std::numeric_limits<double>::infinity();
  for (const LaneCopy& copy : copies) {
    const double begin_s = std::max(lane_s, copy.from_s);
    if (begin_s >= until_s) break;
    lane_s = begin_s + copy.seconds;
    busy_s += std::min(lane_s, until_s) - begin_s;
  }
  return busy_s;
}

// What can be away while the pass at `position` runs.
double MostAway(const Schedule& schedule, int rank, const RankPlan& plan,
                const PassTimes& times, const std::vector<int32_t>& candidates,
                const OffloadCosts& costs, int64_t position) {
  const double slack_s = kSlackOfPlans * times.end_s.back();
  const double begin_s = times.start_s[position];
  const double end_s = times.end_s[position];
  const std::vector<double>& moved =
      costs.moved.empty() ? costs.weight : costs.moved;
  // Loads backwards in time.
  std::vector<LaneCopy> out;
  std::vector<LaneCopy> in;
  double bytes = 0;
  double out_rate = 0;
  double in_rate = 0;
  for (const int32_t index : candidates) {
    const PlannedActivation& each = plan.activations()[index];
    if (each.behind > position || each.needed_at <= position) continue;
    const double out_s = std::min(each.out_s, each.out_alone_s);
    const double in_s = std::min(each.in_s, each.in_alone_s);
    if (each.ready_s + out_s > begin_s + slack_s ||
        each.needed_s - in_s < end_s - slack_s) {
      continue;
    }
    const double own = moved[schedule.placement.StageOf(
        rank, each.forward.chunk(), each.forward.direction())];
    bytes += own;
    out.push_back({each.ready_s, out_s});
    in.push_back({-each.needed_s, in_s});
    const double free = std::numeric_limits<double>::infinity();
    out_rate = std::max(out_rate, out_s > 0 ? own / out_s : free);
    in_rate = std::max(in_rate, in_s > 0 ? own / in_s : free);
  }
  if (bytes == 0) return 0;
  const double out_bytes =
      out_rate * (BusySeconds(std::move(out), begin_s) + slack_s);
  const double in_bytes =
      in_rate * (BusySeconds(std::move(in), -end_s) + slack_s);
  return std::min({bytes, out_bytes, in_bytes});
}

}  // namespace

absl::StatusOr<std::vector<double>> LeastLevels(
    const Schedule& schedule, const Program& program,
    const OffloadChoice& choice, const OffloadCosts& costs,
    const std::vector<KnownLevel>& known) {
  // So many moments of a rank are looked at, all of them nearly its fullest.
  constexpr int64_t kLooks = 32;
  constexpr double kNearly = 0.5;
  PW_ASSIGN_OR_RETURN(std::vector<PassTimes> times, EarliestTimes(program));
  DelayWarmUp(program, &times);
  std::vector<double> least(schedule.pp(), 0.0);
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const RankPlan plan(schedule, rank, times[rank], costs);
    const std::vector<int32_t> candidates = plan.Candidates(choice);
    const auto look = [&](int64_t position, double level) {
      least[rank] = std::max(least[rank],
                             level - MostAway(schedule, rank, plan, times[rank],
                                              candidates, costs, position));
    };
    if (known[rank].position >= 0) {
      look(known[rank].position, known[rank].level);
    }
    const std::vector<double>& levels = plan.levels();
    const double most = *std::max_element(levels.begin(), levels.end());
    std::vector<int64_t> full;
    for (int64_t position = 0; position < std::ssize(levels); ++position) {
      if (levels[position] > kNearly * most) full.push_back(position);
    }
    const int64_t step = std::max<int64_t>(1, std::ssize(full) / kLooks);
    for (int64_t index = 0; index < std::ssize(full); index += step) {
      look(full[index], levels[full[index]]);
    }
  }
  return least;
}

}  // namespace pipewright
