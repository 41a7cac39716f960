// Bounds that need the order of a schedule, which is built once: its longest
// path.
#include <algorithm>
#include <utility>

#include "sim/analysis/search/plan_bound.h"
#include "sim/analysis/search/plan_replay.h"
#include "sim/memory/schedule_memory.h"
#include "sim/model/ops.h"
#include "sim/schedule/core.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/wiring.h"

namespace pipewright {
namespace {

// Larger orders are left to the run itself.
constexpr int64_t kMostReplayed = 4'000'000;

}  // namespace

std::shared_ptr<const PlanBounds::Order> PlanBounds::OrderOf(
    const PlanGroup& group) {
  const std::tuple<int, int, int, int> key = {group.schedule, group.pp,
                                              group.vpp, group.microbatches};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = orders_.find(key);
    if (found != orders_.end()) return found->second;
  }
  auto order = std::make_shared<Order>();
  const RunConfig& base = space_->request().base;
  const double passes = 3.0 * group.pp * group.vpp * group.microbatches;
  if (!space_->is_planner(group.schedule) && base.schedule.params.empty() &&
      base.strategy.slices.value_or(1) == 1 && passes < kMostReplayed) {
    ScheduleParams params;
    params.pp = group.pp;
    params.vpp = group.vpp;
    params.microbatches = group.microbatches;
    params.max_activations = base.strategy.max_activations;
    absl::StatusOr<Schedule> built =
        BuildSchedule(space_->schedules()[group.schedule], params);
    if (built.ok() && built->slices == 1) {
      order->schedule = std::make_shared<const Schedule>(*std::move(built));
    }
  }
  if (order->schedule != nullptr) {
    const Schedule& schedule = *order->schedule;
    const absl::StatusOr<ScheduleMatch> match =
        FindSchedule(space_->schedules()[group.schedule]);
    order->offloads = match.ok() && match->info->offload != OffloadMode::kNone;
    order->wiring = std::make_shared<const Wiring>(WireSchedule(schedule));
    order->recomputes = schedule.Has(PassKind::kRecompute);
    const size_t lanes =
        static_cast<size_t>(schedule.directions) * schedule.vpp();
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      // Where most forwards wait for a backward, and where most passes wait
      // for anything.
      Held now = {std::vector<double>(lanes, 0.0),
                  std::vector<double>(lanes, 0.0),
                  std::vector<double>(lanes * kNumPassKinds, 0.0)};
      Held fullest = now;
      Held fullest_both = now;
      double kept = 0, both = 0, most_kept = 0, most_both = 0;
      for (const Pass pass : schedule.order(rank)) {
        const size_t lane =
            static_cast<size_t>(pass.direction()) * schedule.vpp() +
            pass.chunk();
        now.passes[static_cast<size_t>(pass.kind()) * lanes + lane] += 1;
        if (pass.kind() == PassKind::kForward) {
          now.kept[lane] += 1;
          kept += 1;
          both += 1;
        } else if (pass.kind() == PassKind::kBackwardFull) {
          now.kept[lane] -= 1;
          kept -= 1;
          both -= 1;
        } else if (pass.kind() == PassKind::kBackwardInput) {
          now.kept[lane] -= 1;
          now.weight[lane] += 1;
          kept -= 1;
        } else if (pass.kind() == PassKind::kBackwardWeight) {
          now.weight[lane] -= 1;
          both -= 1;
        }
        if (kept > most_kept) {
          most_kept = kept;
          fullest = now;
        }
        if (both > most_both) {
          most_both = both;
          fullest_both = now;
        }
      }
      order->held.push_back({fullest, fullest_both});
      order->passes.push_back(std::move(now.passes));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [known, is_new] = orders_.try_emplace(key, order);
  if (is_new && order->schedule != nullptr) {
    std::vector<const Order*>& firsts =
        firsts_[{group.pp, group.vpp, group.microbatches}];
    const auto first =
        std::find_if(firsts.begin(), firsts.end(), [&](const Order* other) {
          return other->offloads == order->offloads &&
                 RunAlike(*other->schedule, *order->schedule);
        });
    order->first = first == firsts.end() ? order.get() : *first;
    if (first == firsts.end()) firsts.push_back(order.get());
  }
  return known->second;
}

double PlanBounds::LeastHop(const PlanGroup& group) const {
  const PreparedRun& probe = space_->probe();
  const CostChoice& given = space_->request().base.costs;
  if (given.p2p_s) return *given.p2p_s;
  const ShapeParams* const shape = probe.network.system_shape();
  if (shape == nullptr || space_->model() == nullptr || given.hop_bytes) {
    return 0;
  }
  const double bytes = HopBytes(*space_->model(), space_->TrainingOf(group));
  const int nics =
      shape->nics_per_node > 0 ? shape->nics_per_node : shape->devices_per_node;
  const double share =
      std::max(1.0, static_cast<double>(nics) / shape->devices_per_node);
  double rate = share * shape->nic.bytes_per_s;
  if (group.tp * group.cp < space_->devices_per_node()) {
    rate = std::max(rate, shape->MostInNode());
  }
  return rate > 0 ? bytes / rate : 0;
}

double PlanBounds::ReplaySeconds(const PlanPoint& point, double most_s) {
  const PlanGroup& group = point.group;
  const ScheduleFacts& facts = FactsOf(group);
  if (facts.rank_of_stage.empty()) return 0;
  const Own own = OwnOf(point, facts);
  const double closed_s = ClosedSeconds(group, facts, own);
  if (!synchronised_ || !facts.flushes) return closed_s;
  const std::shared_ptr<const Order> order = OrderOf(group);
  if (order->schedule == nullptr) return closed_s;
  // Longer passes are those of a sharding.
  std::vector<int> key = {group.schedule,
                          group.pp,
                          group.vpp,
                          group.microbatches,
                          group.layout,
                          group.tp,
                          group.cp,
                          group.ep,
                          group.microbatch_size,
                          static_cast<int>(group.recompute),
                          group.dp};
  key.push_back(own.is_longer ? static_cast<int>(point.data_parallel) : 0);
  std::shared_ptr<const std::vector<double>> ends;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = replays_.find(key);
    if (found != replays_.end()) ends = found->second;
    // What runs beside passes makes no step shorter, and beside those of fsdp
    // runs all that runs beside those of zero2.
    for (const DataParallel less :
         {DataParallel::kNone, DataParallel::kZero2}) {
      if (ends != nullptr || !own.is_longer || less >= point.data_parallel) {
        continue;
      }
      std::vector<int> shorter = key;
      shorter.back() = static_cast<int>(less);
      const auto other = replays_.find(shorter);
      if (other == replays_.end()) continue;
      double end_s = 0;
      for (const double each : *other->second) end_s = std::max(end_s, each);
      if (end_s > most_s) return std::max(closed_s, end_s);
    }
  }
  if (ends == nullptr) {
    const double pair = space_->request().base.costs.pair_factor.value_or(1);
    NullObserver observer;
    ends = std::make_shared<const std::vector<double>>(
        Replayed(*order, own.stages, least_factor_ / std::min(1.0, pair),
                 nullptr, LeastHop(group), pair, observer));
    const std::lock_guard<std::mutex> lock(mutex_);
    replays_.try_emplace(std::move(key), ends);
  }
  double most = 0;
  for (size_t rank = 0; rank < ends->size(); ++rank) {
    most = std::max(most, (*ends)[rank] + own.extra.rank_after_s[rank]);
  }
  return std::max(closed_s, own.extra.before_s + most + own.step_s);
}

}  // namespace pipewright
