#include "sim/search/plan_search.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "sim/config/least_bytes.h"
#include "sim/report/peak_memory.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr size_t kBatch = 32;        // points that are worked on together
constexpr size_t kGroupBatch = 256;  // groups
constexpr size_t kGroupsBeforeCopies = 1 << 16;
constexpr int64_t kOrders = 64;  // of the points of a group, at most

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

void PlanSearch::Run() {
  MakeGroups();
  outcome_.limit_bytes = bounds_.memory_limit();
  Explore();
  if (options_.confirm) Confirm();
  Close();
}

void PlanSearch::MakeGroups() {
  std::vector<PlanGroup> all = space_.Groups();
  groups_.resize(all.size());
  InThreads(options_.workers, (all.size() + 1023) / 1024, [&](size_t block) {
    const size_t end = std::min(all.size(), (block + 1) * 1024);
    for (size_t index = block * 1024; index < end; ++index) {
      groups_[index] = {
          options_.bound_factor *
              ScoreOf(all[index], bounds_.StepSeconds(all[index])),
          static_cast<int64_t>(index), all[index]};
    }
  });
  for (const PlanGroup& group : all) {
    outcome_.counts.legal += space_.NumPoints(group);
  }
  std::sort(groups_.begin(), groups_.end());
}

void PlanSearch::Explore() {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  while (true) {
    const double group_score =
        next_group_ < groups_.size() ? groups_[next_group_].score : kNone;
    const double point_score = points_.empty() ? kNone : points_.top().score;
    const double copies_score = copies_.empty() ? kNone : copies_.top().score;
    const double score = std::min(group_score, point_score);
    const bool goes_on = std::isfinite(score) && !IsOut(score);
    // Where little fits without copies, some with them are tried meanwhile.
    const bool waits = best_.size() < kExact && opened_ < kGroupsBeforeCopies;
    const bool copies = std::isfinite(copies_score) && !IsOut(copies_score) &&
                        (!goes_on || (!waits && copies_score < score));
    const auto look = [&](std::priority_queue<OpenPoint>* points,
                          double until) {
      if (!points->top().is_refined()) {
        Refine(points, until);
      } else {
        TryPoints(points, until);
      }
    };
    if (copies) {
      opened_ = 0;
      look(&copies_, kNone);
    } else if (!goes_on) {
      return;
    } else if (group_score <= point_score) {
      OpenGroups(point_score);
    } else {
      look(&points_, group_score);
    }
  }
}

void PlanSearch::OpenGroups(double until) {
  std::vector<const OpenGroup*> batch;
  while (next_group_ < groups_.size() && batch.size() < kGroupBatch &&
         groups_[next_group_].score <= until) {
    batch.push_back(&groups_[next_group_++]);
  }
  opened_ += batch.size();
  std::vector<std::vector<OpenPoint>> opened(batch.size());
  InThreads(options_.workers, batch.size(), [&](size_t index) {
    const OpenGroup& group = *batch[index];
    int64_t order = group.order * kOrders;
    std::optional<OpenPoint> copies;
    double score = 0;
    const DataParallel* sharding = nullptr;
    const std::vector<PlanPoint> points = space_.PointsOf(group.group);
    for (const PlanPoint& point : points) {
      // Copies take nothing off the bound on time.
      if (sharding == nullptr || *sharding != point.data_parallel) {
        sharding = &point.data_parallel;
        score = std::max(group.score,
                         options_.bound_factor *
                             ScoreOf(point.group, bounds_.StepSeconds(point)));
      }
      if (point.offload == OffloadMode::kNone) {
        opened[index].push_back({score, order, point});
      } else if (!copies || score < copies->score) {
        copies = {score, order, point, OpenPoint::Known::kGroup};
      }
      ++order;
    }
    if (copies) opened[index].push_back(*copies);
  });
  for (const std::vector<OpenPoint>& points : opened) {
    for (const OpenPoint& point : points) {
      (point.known == OpenPoint::Known::kGroup ? copies_ : points_).push(point);
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
    outcome_.kept_out = point;
    outcome_.kept_out_s = score;
  }
}

// Copies take time and never give any: an order runs no faster with them.
bool PlanSearch::IsDominated(const PlanPoint& point, int64_t order) {
  if (point.offload == OffloadMode::kNone ||
      fitting_.count(order - OffloadIndex(point)) == 0) {
    return false;
  }
  ++outcome_.counts.dominated;
  return true;
}

std::vector<PlanSearch::Refined> PlanSearch::RefinedOf(const OpenPoint& open,
                                                       double most_s) {
  std::vector<Refined> all;
  if (open.known == OpenPoint::Known::kGroup) {
    int64_t order = open.order / kOrders * kOrders;
    std::vector<PlanPoint> points;
    for (const PlanPoint& point : space_.PointsOf(open.point.group)) {
      if (point.offload != OffloadMode::kNone) {
        points.push_back(point);
        all.push_back({{open.score, order, point}});
      }
      ++order;
    }
    const std::vector<double> bytes =
        bounds_.MemoryWithCopies(points, most_s, &context_);
    for (size_t index = 0; index < all.size(); ++index) {
      all[index].bytes = bytes[index];
    }
  } else {
    all.push_back({open, bounds_.MemoryBytes(open.point)});
  }
  for (Refined& each : all) {
    OpenPoint& own = each.open;
    own.known = OpenPoint::Known::kReplayed;
    if (each.bytes > bounds_.memory_limit()) continue;
    own.score = std::max(
        own.score,
        options_.bound_factor *
            ScoreOf(own.point.group, bounds_.ReplaySeconds(own.point)));
  }
  return all;
}

// What does not fit leaves, and orders are replayed. Copies have to take away
// enough in the time that a step may have.
void PlanSearch::Refine(std::priority_queue<OpenPoint>* points, double until) {
  std::vector<OpenPoint> batch;
  while (!points->empty() && batch.size() < kGroupBatch) {
    const OpenPoint& top = points->top();
    if (top.is_refined() || top.score > until || IsOut(top.score)) break;
    batch.push_back(top);
    points->pop();
  }
  double most = Threshold();
  if (options_.confirm) most = std::max(most, first_ * kMostWidened);
  std::vector<std::vector<Refined>> refined(batch.size());
  InThreads(options_.workers, batch.size(), [&](size_t index) {
    refined[index] =
        RefinedOf(batch[index], most / ScoreOf(batch[index].point.group, 1));
  });
  for (const std::vector<Refined>& each : refined) {
    for (const Refined& own : each) {
      if (own.bytes > bounds_.memory_limit()) {
        KeepOut(own.open.point, own.bytes, own.open.score);
      } else {
        points->push(own.open);
      }
    }
  }
}

void PlanSearch::TryPoints(std::priority_queue<OpenPoint>* points,
                           double until) {
  std::vector<OpenPoint> batch;
  while (!points->empty() && batch.size() < kBatch) {
    const OpenPoint& top = points->top();
    if (!top.is_refined() || top.score > until || IsOut(top.score)) break;
    if (!IsDominated(top.point, top.order)) batch.push_back(top);
    points->pop();
  }
  std::vector<Tried> tried(batch.size());
  InThreads(options_.workers, batch.size(),
            [&](size_t index) { Try(batch[index], &tried[index]); });
  for (size_t index = 0; index < batch.size(); ++index) {
    Take(batch[index], std::move(tried[index]));
  }
}

// A plan of copies takes longer than all else that a run needs. Before it is
// made, what could be away at all bounds the memory, and the same run without
// copies, which is no slower, the time.
void PlanSearch::TryWithoutCopies(const PlanPoint& point, Tried* tried) {
  tried->without_s = 0;
  tried->bytes = bounds_.PlannedBytes(point, &context_);
  tried->fits = tried->bytes <= bounds_.memory_limit();
  if (!tried->fits) return;
  PlanPoint without = point;
  without.offload = OffloadMode::kNone;
  absl::StatusOr<PreparedRun> prepared =
      Prepare(space_.ConfigOf(without), &context_);
  // The run itself will say why.
  if (!prepared.ok()) return;
  const absl::StatusOr<SimulatedRun> run = Simulate(*std::move(prepared));
  if (run.ok()) tried->without_s = run->report.iteration_s;
}

void PlanSearch::Try(const OpenPoint& open, Tried* tried) {
  if (open.point.offload != OffloadMode::kNone &&
      open.known != OpenPoint::Known::kRunWithout) {
    TryWithoutCopies(open.point, tried);
    return;
  }
  absl::StatusOr<PreparedRun> prepared =
      Prepare(space_.ConfigOf(open.point), &context_);
  tried->status = prepared.status();
  if (!prepared.ok()) return;
  if (prepared->memory) {
    const ScheduleMemory& memory = *prepared->memory->memory;
    tried->bytes =
        static_cast<double>(memory.ranks[memory.WorstRank()].needed());
    tried->fits = prepared->memory->fits();
  }
  tried->fits = tried->fits && prepared->limit().ok();
  if (!tried->fits) return;
  const double tokens = prepared->tokens.value_or(0);
  const std::optional<double> price =
      prepared->config.costs.price_per_device_hour;
  const absl::StatusOr<SimulatedRun> run = Simulate(*std::move(prepared));
  tried->status = run.status();
  if (!run.ok()) return;
  PlanResult& result = tried->result;
  result.point = open.point;
  result.order = open.order;
  result.bound_s = open.score / ScoreOf(open.point.group, 1);
  result.iteration_s = run->report.iteration_s;
  result.tokens_per_s =
      result.iteration_s > 0 ? tokens / result.iteration_s : 0;
  result.peak_bytes = MostPeakMemoryOf(run->report);
  if (price && run->report.throughput) {
    result.cost = run->report.throughput->cost_per_1e9_tokens();
  }
  result.score = ScoreOf(open.point.group, result.iteration_s);
}

void PlanSearch::Take(const OpenPoint& open, Tried tried) {
  if (tried.status.code() == absl::StatusCode::kResourceExhausted) {
    tried.fits = false;
  } else if (!tried.status.ok()) {
    ++outcome_.counts.refused;
    ++outcome_.counts.reasons[std::string(tried.status.message())];
    return;
  }
  if (!tried.fits) {
    KeepOut(open.point, tried.bytes, open.score);
    return;
  }
  if (tried.without_s >= 0) {
    OpenPoint timed = open;
    timed.known = OpenPoint::Known::kRunWithout;
    timed.score =
        std::max(open.score, options_.bound_factor *
                                 ScoreOf(open.point.group, tried.without_s));
    copies_.push(timed);
    return;
  }
  ++outcome_.counts.simulated;
  if (open.point.offload == OffloadMode::kNone) {
    fitting_.insert(open.order - OffloadIndex(open.point));
  }
  results_.push_back(std::move(tried.result));
  const double score = results_.back().score;
  first_ = std::min(first_, score);
  best_.insert(score);
  if (best_.size() > kExact) best_.erase(std::prev(best_.end()));
}

}  // namespace pipewright
