#include "sim/analysis/search/plan_search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/report/report.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr size_t kBatch = 32;        // points that are worked on together
constexpr size_t kFirstBatch = 4;    // until one of them fits
constexpr size_t kGroupBatch = 256;  // groups
constexpr size_t kMostWaiting = 1 << 16;
constexpr int64_t kOrders = 64;  // orders of a group's points, at most

// Calls work(0) to work(count - 1) on some threads.
void InThreads(int workers, size_t count,
               const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t index = next++; index < count; index = next++) work(index);
  };
  std::vector<std::thread> threads;
  const size_t helpers =
      std::min<size_t>(std::max(workers, 1), std::max<size_t>(count, 1)) - 1;
  for (size_t index = 0; index < helpers; ++index) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

double PlanSearch::ScorePerSecond(const PlanGroup& group) const {
  const double devices = double{1} * group.nodes * space_.devices_per_node();
  switch (space_.request().objective) {
    case PlanObjective::kTokensPerSecond:
      return 1;
    case PlanObjective::kCost:
      return devices;
    case PlanObjective::kEnergy:
      return devices * space_.Of(group).idle_watts();
  }
  return 1;
}

void PlanSearch::RunPlain() {
  MakeGroups();
  Explore();
  Close();
}

void PlanSearch::Run(const PlanOutcome& plain) {
  plain_ = &plain;
  outcome_.counts.plain = plain.counts.tried;
  outcome_.limit_bytes = bounds_[0].memory_limit();
  if (plain.ranked.size() >= exact()) {
    most_ = std::min(most_, plain.ranked[exact() - 1].score);
  }
  MakeGroups();
  Explore();
  // What was found first may be all there is, and would be if bounds were
  // wrong.
  const bool keeps = !outcome_.is_whole || results_.size() < exact();
  for (size_t row = 0; keeps && row < plain.ranked.size(); ++row) {
    const PlanResult& result = plain.ranked[row];
    const auto is_same = [&](const PlanResult& other) {
      return other.point == result.point;
    };
    if (std::any_of(results_.begin(), results_.end(), is_same)) continue;
    results_.push_back(result);
    results_.back().order = -1 - result.order;  // counted on its own
  }
  if (options_.confirm) Confirm();
  Close();
}

void PlanSearch::MakeGroups() {
  std::vector<PlanGroup> all;
  for (PlanSpace* const variant : space_.Variants()) {
    const std::vector<PlanGroup> own = variant->Groups(plain_ == nullptr);
    all.insert(all.end(), own.begin(), own.end());
  }
  groups_.resize(all.size());
  InThreads(options_.workers, (all.size() + 1023) / 1024, [&](size_t block) {
    const size_t end = std::min(all.size(), (block + 1) * 1024);
    for (size_t index = block * 1024; index < end && !MustStop(); ++index) {
      groups_[index] = {
          options_.bound_factor *
              ScoreOf(all[index], BoundsOf(all[index]).StepSeconds(all[index])),
          static_cast<int64_t>(index), all[index]};
    }
  });
  for (const PlanGroup& group : all) {
    outcome_.counts.legal += space_.NumPoints(group);
  }
  std::sort(groups_.begin(), groups_.end());
}

void PlanSearch::Report() const {
  if (!options_.progress) return;
  PlanCounts counts = outcome_.counts;
  const PlanResult* best = first_result_ ? &*first_result_ : nullptr;
  if (plain_ == nullptr) {
    counts = {.tried = 0, .plain = counts.tried};
  } else if (!plain_->ranked.empty() && plain_->ranked[0].score < first_) {
    best = &plain_->ranked[0];
  }
  options_.progress({space_, counts, best,
                     plain_ == nullptr ? std::optional<double>() : left_});
}

void PlanSearch::CutHere(PlanCut cut) {
  outcome_.cut = cut;
  outcome_.is_whole = false;
  outcome_.left = left_;
}

void PlanSearch::Explore() {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  while (true) {
    // What was stopped has not put back what it took.
    if (MustStop()) {
      CutHere(options_.stops());
      return;
    }
    const double group_s =
        next_group_ < groups_.size() ? groups_[next_group_].score : kNone;
    const double point_s = points_.empty() ? kNone : points_.top().score;
    const double ahead_s = std::min(group_s, point_s);
    const double waiting_s = waiting_.empty() ? kNone : waiting_.front()->score;
    left_ = std::min(ahead_s, waiting_s);
    // If little fits without copies, they do not wait for ever.
    const bool waits = best_.size() < exact() && std::isfinite(group_s) &&
                       !IsOut(ahead_s) && waiting_.size() < kMostWaiting;
    const double least_s = waits ? ahead_s : *left_;
    if (std::isinf(least_s) || IsOut(least_s)) return;
    Report();
    if (IsSpent()) {
      CutHere(PlanCut::kCandidates);
      return;
    }
    if (least_s == group_s) {
      OpenGroups(std::min(point_s, waits ? kNone : waiting_s));
    } else if (least_s == point_s) {
      TryPoints(std::min(group_s, waits ? kNone : waiting_s));
    } else {
      OpenWaiting(ahead_s);
    }
  }
}

void PlanSearch::DropSame(std::vector<const OpenGroup*>* batch) {
  std::vector<const void*> orders(batch->size());
  InThreads(options_.workers, batch->size(), [&](size_t index) {
    if (MustStop()) return;
    const PlanGroup& group = (*batch)[index]->group;
    orders[index] = BoundsOf(group).OrderKey(group);
  });
  size_t kept = 0;
  for (size_t index = 0; index < batch->size(); ++index) {
    const OpenGroup* const open = (*batch)[index];
    const PlanGroup& group = open->group;
    const SameKey key = {
        {group.nodes, group.dp, group.microbatches, group.microbatch_size,
         group.tp, group.cp, group.ep, group.pp, group.vpp, group.layout,
         static_cast<int64_t>(group.recompute)},
        orders[index]};
    const OpenGroup* const first =
        orders[index] == nullptr ? open
                                 : firsts_.try_emplace(key, open).first->second;
    if (first == open) {
      (*batch)[kept++] = open;
      continue;
    }
    outcome_.counts.same += space_.NumPoints(group);
    same_[first->order].push_back(space_.schedules()[group.schedule]);
  }
  batch->resize(kept);
}

void PlanSearch::OpenGroups(double until) {
  std::vector<const OpenGroup*> batch;
  while (next_group_ < groups_.size() && batch.size() < kGroupBatch &&
         groups_[next_group_].score <= until) {
    batch.push_back(&groups_[next_group_++]);
  }
  DropSame(&batch);
  if (best_.size() >= exact()) {
    Open(batch, Which::kAll);
    return;
  }
  Open(batch, Which::kWithout);
  waiting_.insert(waiting_.end(), batch.begin(), batch.end());
}

void PlanSearch::OpenWaiting(double until) {
  std::vector<const OpenGroup*> batch;
  while (!waiting_.empty() && batch.size() < kGroupBatch &&
         waiting_.front()->score <= until) {
    batch.push_back(waiting_.front());
    waiting_.pop_front();
  }
  Open(batch, Which::kWith);
}

// Bounds from the cheapest on, each for what those before it have left.
std::vector<PlanSearch::Opened> PlanSearch::PointsOf(const OpenGroup& group,
                                                     Which which) {
  std::vector<Opened> opened;
  std::vector<PlanPoint> points;
  PlanBounds& bounds = BoundsOf(group.group);
  const double most = Most();
  const double most_s = SecondsOf(group.group, most);
  int64_t order = group.order * kOrders;
  for (const PlanPoint& point : space_.PointsOf(group.group)) {
    if (plain_ == nullptr && !space_.IsPlain(point)) {
      ++order;
      continue;
    }
    const bool copies = point.offload != OffloadMode::kNone;
    if (which == Which::kAll || copies == (which == Which::kWith)) {
      opened.push_back({{group.score, order, point}});
      points.push_back(point);
    }
    ++order;
  }
  const std::vector<double> bytes =
      bounds.MemoryBytes(points, most_s, &context_);
  // Points of a sharding stand together, and copies take nothing off the bound
  // on time.
  const auto bound = [&](auto seconds_of) {
    const Opened* before = nullptr;
    for (Opened& each : opened) {
      if (each.bytes > bounds.memory_limit()) continue;
      const bool same = before != nullptr && before->open.point.data_parallel ==
                                                 each.open.point.data_parallel;
      each.open.score =
          same
              ? before->open.score
              : std::max(each.open.score,
                         options_.bound_factor *
                             ScoreOf(group.group, seconds_of(each.open.point)));
      before = &each;
    }
  };
  for (size_t index = 0; index < opened.size(); ++index) {
    opened[index].bytes = bytes[index];
  }
  const auto is_out = [&](const Opened& each) {
    return each.open.score * (1 - kBoundRounding) > most;
  };
  bound([&](const PlanPoint& point) { return bounds.StepSeconds(point); });
  std::erase_if(opened, is_out);
  bound([&](const PlanPoint& point) {
    return bounds.ReplaySeconds(point, most_s * (1 + 2 * kBoundRounding));
  });
  std::erase_if(opened, is_out);
  return opened;
}

void PlanSearch::Open(const std::vector<const OpenGroup*>& batch, Which which) {
  std::vector<std::vector<Opened>> opened(batch.size());
  InThreads(options_.workers, batch.size(), [&](size_t index) {
    if (!MustStop()) opened[index] = PointsOf(*batch[index], which);
  });
  for (const std::vector<Opened>& points : opened) {
    for (const Opened& each : points) {
      if (each.bytes > bounds_[0].memory_limit()) {
        KeepOut(each.open.point, each.bytes, each.open.score);
      } else {
        points_.push(each.open);
      }
    }
  }
}

void PlanSearch::KeepOut(const PlanPoint& point, double bytes, double score) {
  ++outcome_.counts.memory;
  if (!outcome_.smallest || bytes < outcome_.smallest_bytes) {
    outcome_.smallest = point;
    outcome_.smallest_bytes = bytes;
  }
  if (!outcome_.kept_out || score < outcome_.kept_out_s) {
    // Bounds of groups are not looked at further where nothing fits.
    score = std::max(
        score,
        options_.bound_factor *
            ScoreOf(point.group, BoundsOf(point.group).StepSeconds(point)));
  }
  // A bound may be that of copies that take no longer than the best step.
  if ((!outcome_.kept_out || score < outcome_.kept_out_s) &&
      (point.offload == OffloadMode::kNone ||
       BoundsOf(point.group).MemoryBytes(point) > bounds_[0].memory_limit())) {
    outcome_.kept_out = point;
    outcome_.kept_out_s = score;
  }
}

// Is it known what becomes of a point with copies, or what it takes without?
bool PlanSearch::IsKnown(const OpenPoint& open) {
  const OffloadMode mode = open.point.offload;
  if (mode == OffloadMode::kNone) return false;
  // Copies take time and never give any: an order runs no faster with them.
  const int64_t without = open.order - OffloadIndex(open.point);
  if (fitting_.count(without) > 0) {
    ++outcome_.counts.dominated;
    return true;
  }
  // An order has the same copies whatever is sharded.
  const auto planned = planned_.find({open.order / kOrders, mode});
  if (planned == planned_.end()) return false;
  const double bytes =
      BoundsOf(open.point.group).BytesBeside(open.point, planned->second);
  if (bytes > bounds_[0].memory_limit()) {
    KeepOut(open.point, bytes, open.score);
    return true;
  }
  const auto timed = without_.find(without);
  if (open.is_timed || timed == without_.end()) return false;
  OpenPoint again = open;
  again.is_timed = true;
  again.score =
      std::max(open.score, options_.bound_factor *
                               ScoreOf(open.point.group, timed->second));
  points_.push(again);
  return true;
}

void PlanSearch::TryPoints(double until) {
  std::vector<OpenPoint> batch;
  std::vector<OpenPoint> later;
  std::set<int64_t> now;         // orders without copies
  std::set<int64_t> groups_now;  // whose copies are looked at
  // The first answer does not wait for others.
  size_t most = std::isinf(first_) && plain_ == nullptr ? kFirstBatch : kBatch;
  if (options_.most_tried > 0) {
    most = std::min<size_t>(most, options_.most_tried - tried());
  }
  while (!points_.empty() && batch.size() < most &&
         points_.top().score <= until && !IsOut(points_.top().score)) {
    const OpenPoint top = points_.top();
    points_.pop();
    if (IsKnown(top)) continue;
    const int64_t without = top.order - OffloadIndex(top.point);
    const bool copies = top.point.offload != OffloadMode::kNone;
    // Let it be seen first whether the run fits without copies, and what is the
    // same for others of the group.
    if ((copies && now.count(without) > 0) ||
        (copies && !top.is_timed &&
         !groups_now.insert(top.order / kOrders).second)) {
      later.push_back(top);
      continue;
    }
    if (!copies) now.insert(without);
    batch.push_back(top);
  }
  for (const OpenPoint& open : later) points_.push(open);
  std::vector<Tried> tried(batch.size());
  InThreads(options_.workers, batch.size(), [&](size_t index) {
    if (MustStop()) return;
    Try(batch[index], &tried[index]);
    tried[index].is_done = true;
  });
  for (size_t index = 0; index < batch.size(); ++index) {
    if (tried[index].is_done) Take(batch[index], std::move(tried[index]));
  }
}

// A plan of copies takes longer than all else that a run needs. Before it is
// made, what could be away at all bounds the memory, and the same run without
// copies, which is no slower, the time.
void PlanSearch::TryWithoutCopies(const OpenPoint& open, Tried* tried) {
  const PlanPoint& point = open.point;
  tried->without_s = 0;
  if (planned_.count({open.order / kOrders, point.offload}) == 0) {
    tried->live =
        BoundsOf(point.group)
            .LeastLive(point.group, std::isfinite(Threshold()), &context_);
    tried->bytes =
        BoundsOf(point.group).BytesBeside(point, tried->live.at(point.offload));
    tried->fits = tried->bytes <= bounds_[0].memory_limit();
    if (!tried->fits) return;
  }
  PlanPoint without = point;
  without.offload = OffloadMode::kNone;
  // The run itself will say what is wrong.
  const absl::StatusOr<SimulatedRun> run =
      Simulate(space_.CandidateOf(without), &context_);
  if (run.ok()) tried->without_s = run->report.iteration_s;
}

void PlanSearch::Try(const OpenPoint& open, Tried* tried) {
  if (open.point.offload != OffloadMode::kNone && !open.is_timed) {
    TryWithoutCopies(open, tried);
    return;
  }
  absl::StatusOr<PreparedRun> prepared =
      Prepare(space_.CandidateOf(open.point), &context_);
  tried->status = prepared.status();
  if (!prepared.ok()) return;
  if (prepared->memory) {
    const ScheduleMemory& memory = *prepared->memory->memory;
    tried->bytes =
        static_cast<double>(memory.ranks[memory.WorstRank()].needed());
    tried->fits = prepared->memory->fits();
    if (open.is_timed) {
      std::vector<double>& live = tried->live[open.point.offload];
      for (const RankMemory& rank : memory.ranks) {
        live.push_back(static_cast<double>(rank.peak()) -
                       static_cast<double>(rank.fixed.total()));
      }
    }
  }
  tried->fits = tried->fits && prepared->limit().ok();
  if (!tried->fits) return;
  PlanResult& result = tried->result;
  result.is_near_limit = IsAtRisk(*prepared);
  const double tokens = prepared->tokens.value_or(0);
  const std::optional<double> price =
      prepared->config.costs.price_per_device_hour;
  const absl::StatusOr<SimulatedRun> run = Simulate(*std::move(prepared));
  tried->status = run.status();
  if (!run.ok()) return;
  result.point = open.point;
  result.order = open.order;
  result.bound_s = SecondsOf(open.point.group, open.score);
  result.iteration_s = run->report.iteration_s;
  result.tokens_per_s =
      result.iteration_s > 0 ? tokens / result.iteration_s : 0;
  result.peak_bytes = MostPeakMemoryOf(run->report);
  if (price && run->report.throughput) {
    result.cost = run->report.throughput->cost_per_1e9_tokens();
  }
  if (run->report.throughput) result.energy = run->report.throughput->energy;
  result.score_per_s = ScorePerSecond(open.point.group);
  if (space_.request().objective == PlanObjective::kEnergy) {
    if (!result.energy) {
      tried->status = absl::InvalidArgumentError("its energy is not known");
      return;
    }
    result.score_fixed =
        result.energy->joules - result.score_per_s * result.iteration_s;
  }
  result.score = result.ScoreAt(result.iteration_s);
}

void PlanSearch::Take(const OpenPoint& open, Tried tried) {
  ++outcome_.counts.tried;
  if (tried.status.code() == absl::StatusCode::kResourceExhausted) {
    tried.fits = false;
  } else if (!tried.status.ok()) {
    ++outcome_.counts.refused;
    ++outcome_.counts.reasons[std::string(tried.status.message())];
    return;
  }
  for (auto& [mode, live] : tried.live) {
    planned_[{open.order / kOrders, mode}] = std::move(live);
  }
  if (!tried.fits) {
    KeepOut(open.point, tried.bytes, open.score);
    return;
  }
  if (tried.without_s >= 0) {
    without_[open.order - OffloadIndex(open.point)] = tried.without_s;
    if (!IsKnown(open)) points_.push(open);
    return;
  }
  ++outcome_.counts.simulated;
  if (open.point.offload == OffloadMode::kNone) {
    fitting_.insert(open.order - OffloadIndex(open.point));
  }
  results_.push_back(std::move(tried.result));
  const double score = results_.back().score;
  if (score < first_) {
    first_ = score;
    first_result_ = results_.back();
  }
  best_.insert(score);
  if (best_.size() > exact()) best_.erase(std::prev(best_.end()));
}

// What the search does with the points that `fast` has simulated: the best of
// them on fluid, and the order of all.

namespace {

// By score. Of those as good as each other, which rounding tells apart, first
// what needs least memory, then in the order of the enumeration.
template <typename Score>
void SortPlans(const Score& score, std::vector<PlanResult>::iterator begin,
               std::vector<PlanResult>::iterator end) {
  const auto is_better = [&](const PlanResult& one, const PlanResult& other) {
    return std::make_pair(score(one), one.order) <
           std::make_pair(score(other), other.order);
  };
  std::sort(begin, end, is_better);
  while (begin != end) {
    const double most = score(*begin) * (1 + kSamePlan);
    const auto same = std::find_if(begin, end, [&](const PlanResult& result) {
      return score(result) > most;
    });
    std::sort(begin, same, [](const PlanResult& one, const PlanResult& other) {
      return std::tie(one.peak_bytes, one.order) <
             std::tie(other.peak_bytes, other.order);
    });
    // Scores that are no numbers are not put in order.
    begin = same == begin ? end : same;
  }
}

double FastScore(const PlanResult& result) { return result.score; }

}  // namespace

// A mean over many passes moves by little; five deviations at most.
double PlanSearch::Slack(const PlanGroup& group) const {
  const double passes = 2.0 * group.microbatches * group.vpp;
  return 5 * 0.03 / std::sqrt(std::max(1.0, passes));
}

// On fluid, in the order of what fast says, which no contention makes
// shorter, until none that is left can be second.
void PlanSearch::Confirm() {
  while (true) {
    SortPlans(FastScore, results_.begin(), results_.end());
    double best = std::numeric_limits<double>::infinity();
    double next = best;
    PlanResult* open = nullptr;
    int64_t left = 0;
    for (PlanResult& result : results_) {
      if (!result.confirmed_s) continue;
      const double score = result.ScoreAt(*result.confirmed_s);
      if (score < best) {
        next = best;
        best = score;
      } else {
        next = std::min(next, score);
      }
    }
    for (PlanResult& result : results_) {
      if (result.confirmed_s || failed_.count(result.order) > 0) continue;
      if (result.score * (1 - Slack(result.point.group)) > next) continue;
      if (open == nullptr) open = &result;
      ++left;
    }
    outcome_.open = left;
    if (open == nullptr || (options_.most_confirmed > 0 &&
                            outcome_.confirmed >= options_.most_confirmed)) {
      break;
    }
    if (MustStop()) {
      outcome_.cut = options_.stops();
      break;
    }
    RunConfig config = space_.ConfigOf(open->point);
    config.engine = "fluid";
    config.costs.jitter = options_.jitter;
    config.costs.seed = space_.request().base.costs.seed.value_or(0);
    const absl::StatusOr<SimulatedRun> run = Simulate(config, &context_);
    ++outcome_.confirmed;
    if (run.ok()) {
      open->confirmed_s = run->report.iteration_s;
    } else {
      failed_.insert(open->order);
      outcome_.warnings.push_back(
          absl::StrCat("not confirmed: ", space_.NameOf(open->point), ": ",
                       run.status().message()));
    }
    if (outcome_.confirmed == 2) {
      // Points that fast has not seen could be second on fluid.
      double known = 0;
      for (const PlanResult& result : results_) {
        if (result.confirmed_s) {
          known = std::max(known, result.ScoreAt(*result.confirmed_s));
        }
      }
      if (known > widened_) {
        widened_ = std::min(known, first_ * kMostWidened);
        Explore();
      }
    }
  }
}

void PlanSearch::Close() {
  const auto fast = std::stable_partition(
      results_.begin(), results_.end(),
      [](const PlanResult& result) { return result.confirmed_s.has_value(); });
  SortPlans(
      [&](const PlanResult& result) {
        return result.ScoreAt(*result.confirmed_s);
      },
      results_.begin(), fast);
  SortPlans(FastScore, fast, results_.end());
  PlanCounts& counts = outcome_.counts;
  int64_t& others = outcome_.is_whole ? counts.bound : counts.left;
  others = counts.legal - counts.memory - counts.same - counts.dominated -
           counts.simulated - counts.refused;
  for (PlanResult& result : results_) {
    const auto same = same_.find(result.order / kOrders);
    if (result.order >= 0 && same != same_.end()) {
      result.same_schedules = same->second;
    }
  }
  std::vector<PlanResult> by_speed = results_;
  SortPlans([](const PlanResult& result) { return 1 / result.tokens_per_s; },
            by_speed.begin(), by_speed.end());
  double least = std::numeric_limits<double>::infinity();
  for (const PlanResult& result : by_speed) {
    if (result.peak_bytes >= least) continue;
    least = result.peak_bytes;
    outcome_.front.push_back(result);
  }
  outcome_.ranked = std::move(results_);
}

}  // namespace pipewright
