#include "sim/search/plan_search.h"

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "sim/report/peak_memory.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr size_t kBatch = 32;        // points that are worked on together
constexpr size_t kGroupBatch = 256;  // groups

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
  while (true) {
    const double group_score = next_group_ < groups_.size()
                                   ? groups_[next_group_].score
                                   : std::numeric_limits<double>::infinity();
    const double point_score = points_.empty()
                                   ? std::numeric_limits<double>::infinity()
                                   : points_.top().score;
    if (std::isinf(group_score) && std::isinf(point_score)) return;
    if (IsOut(std::min(group_score, point_score))) return;
    if (group_score <= point_score) {
      OpenGroups(point_score);
    } else {
      TryPoints(group_score);
    }
  }
}

void PlanSearch::OpenGroups(double until) {
  std::vector<const OpenGroup*> batch;
  while (next_group_ < groups_.size() && batch.size() < kGroupBatch &&
         groups_[next_group_].score <= until) {
    batch.push_back(&groups_[next_group_++]);
  }
  struct Bounded {
    PlanPoint point;
    double score = 0;
    double bytes = 0;
  };
  std::vector<std::vector<Bounded>> bounded(batch.size());
  InThreads(options_.workers, batch.size(), [&](size_t index) {
    std::vector<Bounded>& points = bounded[index];
    for (const PlanPoint& point : space_.PointsOf(batch[index]->group)) {
      Bounded& own = points.emplace_back();
      own.point = point;
      // Points of a sharding stand together. Offload, whatever its mode, makes
      // one difference to the bound on memory and none to that on time.
      const Bounded* const before =
          points.size() > 1 && points[points.size() - 2].point.data_parallel ==
                                   point.data_parallel
              ? &points[points.size() - 2]
              : nullptr;
      const bool copies = point.offload != OffloadMode::kNone;
      own.bytes = before != nullptr && copies == (before->point.offload !=
                                                  OffloadMode::kNone)
                      ? before->bytes
                      : bounds_.MemoryBytes(point);
      const bool fits = own.bytes <= bounds_.memory_limit();
      if (before != nullptr &&
          fits == (before->bytes <= bounds_.memory_limit())) {
        own.score = before->score;
        continue;
      }
      own.score = options_.bound_factor *
                  ScoreOf(point.group, fits ? bounds_.ReplaySeconds(point)
                                            : bounds_.StepSeconds(point));
    }
  });
  for (size_t index = 0; index < batch.size(); ++index) {
    int64_t order = batch[index]->order * 64;
    for (const Bounded& each : bounded[index]) {
      if (each.bytes > bounds_.memory_limit()) {
        KeepOut(each.point, each.bytes, each.score);
      } else {
        points_.push(
            {std::max(each.score, batch[index]->score), order, each.point});
      }
      ++order;
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

void PlanSearch::TryPoints(double until) {
  std::vector<OpenPoint> batch;
  std::vector<OpenPoint> later;
  std::set<int64_t> tried_now;
  while (!points_.empty() && batch.size() < kBatch &&
         points_.top().score <= until && !IsOut(points_.top().score)) {
    const OpenPoint top = points_.top();
    points_.pop();
    // Copies take time and never give any: an order runs no faster with them.
    if (top.point.offload != OffloadMode::kNone &&
        fitting_.count(top.order - OffloadIndex(top.point)) > 0) {
      ++outcome_.counts.dominated;
      continue;
    }
    // Let it be seen first whether the run fits without copies.
    if (top.point.offload != OffloadMode::kNone &&
        tried_now.count(top.order - OffloadIndex(top.point)) > 0) {
      later.push_back(top);
      continue;
    }
    if (top.point.offload == OffloadMode::kNone) {
      tried_now.insert(top.order - OffloadIndex(top.point));
    }
    batch.push_back(top);
  }
  for (const OpenPoint& open : later) points_.push(open);
  std::vector<Tried> tried(batch.size());
  InThreads(options_.workers, batch.size(),
            [&](size_t index) { Try(batch[index], &tried[index]); });
  for (size_t index = 0; index < batch.size(); ++index) {
    Take(batch[index], std::move(tried[index]));
  }
}

void PlanSearch::Try(const OpenPoint& open, Tried* tried) {
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
  ++outcome_.counts.simulated;
  if (open.point.offload == OffloadMode::kNone) {
    fitting_.insert(open.order - OffloadIndex(open.point));
  }
  results_.push_back(std::move(tried.result));
  const double score = results_.back().score;
  if (score < first_) {
    second_ = first_;
    first_ = score;
  } else {
    second_ = std::min(second_, score);
  }
}

}  // namespace pipewright
