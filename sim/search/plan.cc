#include "sim/search/plan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <queue>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/report/format.h"
#include "sim/run/simulated_run.h"
#include "sim/search/memory_advice.h"
#include "sim/search/plan_bound.h"

namespace pipewright {
namespace {

constexpr size_t kBatch = 32;        // points that are worked on together
constexpr size_t kGroupBatch = 256;  // groups
constexpr size_t kMostHelp = 5;

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

struct OpenGroup {
  double score = 0;
  int64_t order = 0;
  PlanGroup group;
  friend bool operator<(const OpenGroup& one, const OpenGroup& other) {
    return std::tie(one.score, one.order) < std::tie(other.score, other.order);
  }
};

struct OpenPoint {
  double score = 0;
  int64_t order = 0;
  PlanPoint point;
  // The smallest on top of a queue.
  friend bool operator<(const OpenPoint& one, const OpenPoint& other) {
    return std::tie(one.score, one.order) > std::tie(other.score, other.order);
  }
};

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

// What became of one point.
struct Tried {
  absl::Status status;
  bool fits = true;
  double bytes = 0;
  PlanResult result;
};

class Search {
 public:
  Search(PlanOutcome* outcome, const PlanOptions& options, RunContext* context)
      : outcome_(*outcome),
        space_(*outcome->space),
        bounds_(&space_),
        options_(options),
        context_(*context) {}

  void Run() {
    MakeGroups();
    outcome_.limit_bytes = bounds_.memory_limit();
    Explore();
    if (options_.confirm) Confirm();
    Close();
  }

 private:
  // What is minimised, for a step of so many seconds.
  double ScoreOf(const PlanGroup& group, double seconds) const {
    return space_.request().objective == PlanObjective::kCost
               ? seconds * group.nodes * space_.devices_per_node()
               : seconds;
  }

  void MakeGroups() {
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

  // What a point must not exceed to be first or second.
  double Threshold() const {
    const std::vector<PlanResult>& known = results_;
    if (known.size() < 2) return std::numeric_limits<double>::infinity();
    return std::max(second_, widened_);
  }

  bool IsOut(double score) const {
    return score * (1 - kBoundRounding) > Threshold();
  }

  // Until every group and point that is left is out.
  void Explore() {
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

  void OpenGroups(double until) {
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
      bool any_fits = false;
      for (const PlanPoint& point : space_.PointsOf(batch[index]->group)) {
        const double bytes = bounds_.MemoryBytes(point);
        any_fits |= bytes <= bounds_.memory_limit();
        bounded[index].push_back({point, 0, bytes});
      }
      for (Bounded& each : bounded[index]) {
        if (each.bytes <= bounds_.memory_limit()) {
          each.score =
              options_.bound_factor *
              ScoreOf(each.point.group, bounds_.ReplaySeconds(each.point));
        } else {
          each.score =
              options_.bound_factor *
              ScoreOf(each.point.group, bounds_.StepSeconds(each.point));
        }
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

  void KeepOut(const PlanPoint& point, double bytes, double score) {
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

  void TryPoints(double until) {
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

  int64_t OffloadIndex(const PlanPoint& point) const {
    const std::vector<OffloadMode>& all = space_.offloads();
    return std::find(all.begin(), all.end(), point.offload) - all.begin();
  }

  void Try(const OpenPoint& open, Tried* tried) {
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
    result.peak_bytes = tried->bytes;
    if (price && run->report.throughput) {
      result.cost = run->report.throughput->cost_per_1e9_tokens();
    }
    result.score = ScoreOf(open.point.group, result.iteration_s);
  }

  void Take(const OpenPoint& open, Tried tried) {
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

  // A mean over many passes moves by little; five deviations at most.
  double Slack(const PlanGroup& group) const {
    const double passes = 2.0 * group.microbatches * group.vpp;
    return 5 * 0.03 / std::sqrt(std::max(1.0, passes));
  }

  // On simgrid, in the order of what fast says, which no contention makes
  // shorter, until none that is left can be second.
  void Confirm() {
    while (true) {
      SortPlans(FastScore, results_.begin(), results_.end());
      double best = std::numeric_limits<double>::infinity();
      double next = best;
      PlanResult* open = nullptr;
      int64_t left = 0;
      for (PlanResult& result : results_) {
        if (!result.confirmed_s) continue;
        const double score = ScoreOf(result.point.group, *result.confirmed_s);
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
      RunConfig config = space_.ConfigOf(open->point);
      config.engine = "simgrid";
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
        // Points that fast has not seen could be second on simgrid.
        double known = 0;
        for (const PlanResult& result : results_) {
          if (result.confirmed_s) {
            known = std::max(known,
                             ScoreOf(result.point.group, *result.confirmed_s));
          }
        }
        if (known > widened_) {
          widened_ = std::min(known, first_ * kMostWidened);
          Explore();
        }
      }
    }
  }

  void Close() {
    const auto fast = std::stable_partition(
        results_.begin(), results_.end(), [](const PlanResult& result) {
          return result.confirmed_s.has_value();
        });
    SortPlans(
        [&](const PlanResult& result) {
          return ScoreOf(result.point.group, *result.confirmed_s);
        },
        results_.begin(), fast);
    SortPlans(FastScore, fast, results_.end());
    PlanCounts& counts = outcome_.counts;
    counts.bound = counts.legal - counts.memory - counts.dominated -
                   counts.simulated - counts.refused;
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

  // On simgrid everything is slower; what fast finds within this of the best
  // is looked at, at most.
  static constexpr double kMostWidened = 1.02;

  PlanOutcome& outcome_;
  PlanSpace& space_;
  PlanBounds bounds_;
  const PlanOptions& options_;
  RunContext& context_;
  std::vector<OpenGroup> groups_;
  size_t next_group_ = 0;
  std::priority_queue<OpenPoint> points_;
  std::set<int64_t> fitting_;  // orders without offload that fit
  std::set<int64_t> failed_;
  std::vector<PlanResult> results_;
  double first_ = std::numeric_limits<double>::infinity();
  double second_ = std::numeric_limits<double>::infinity();
  double widened_ = 0;
};

// What would make the smallest point fit.
void FindHelp(PlanOutcome* outcome, RunContext* context) {
  const absl::StatusOr<PreparedRun> prepared =
      Prepare(outcome->space->ConfigOf(*outcome->smallest), context);
  if (!prepared.ok() || !prepared->memory) return;
  const ScheduleMemory& memory = *prepared->memory->memory;
  outcome->smallest_bytes =
      static_cast<double>(memory.ranks[memory.WorstRank()].needed());
  for (const MemoryChange& change :
       AdviseMemory(*prepared, kMostHelp, context)) {
    if (outcome->help.size() == kMostHelp) break;
    outcome->help.push_back(
        absl::StrCat(change.change, ": ", FormatBytes(change.needed_bytes),
                     change.fits ? ", fits" : ", not enough by itself"));
  }
  outcome->help.push_back(absl::StrCat("devices with ",
                                       FormatBytes(outcome->smallest_bytes),
                                       ", or more nodes"));
}

// What the best would take with as many layers on each stage.
void CompareWithEven(PlanOutcome* outcome, RunContext* context) {
  RunConfig config = outcome->space->ConfigOf(outcome->ranked[0].point);
  if (config.strategy.layers.empty() && !config.strategy.layout) return;
  config.strategy.layers.clear();
  config.strategy.layout.reset();
  const absl::StatusOr<SimulatedRun> run = Simulate(config, context);
  if (!run.ok()) return;
  outcome->even_s = run->report.iteration_s;
  outcome->even_fits = run->report.fits.value_or(true);
}

}  // namespace

absl::StatusOr<PlanOutcome> MakePlan(const PlanRequest& request,
                                     const PlanOptions& options,
                                     RunContext* context) {
  PlanOutcome outcome;
  PW_ASSIGN_OR_RETURN(std::unique_ptr<PlanSpace> space,
                      PlanSpace::Make(request, context));
  outcome.space = std::move(space);
  Search(&outcome, options, context).Run();
  if (outcome.ranked.empty()) {
    if (outcome.smallest) FindHelp(&outcome, context);
    return outcome;
  }
  absl::StatusOr<SimulatedRun> run =
      Simulate(outcome.space->ConfigOf(outcome.ranked[0].point), context,
               {.interval = true});
  if (run.ok()) {
    outcome.interval = run->report.interval;
    std::set<std::string> known;
    for (const std::string& warning : run->warnings()) {
      if (known.insert(warning).second) outcome.warnings.push_back(warning);
    }
    outcome.report = std::move(run->report);
  }
  CompareWithEven(&outcome, context);
  return outcome;
}

absl::Status PlanVerdict(const PlanOutcome& outcome) {
  if (!outcome.ranked.empty()) return absl::OkStatus();
  const PlanCounts& counts = outcome.counts;
  if (counts.legal == 0) {
    return absl::InvalidArgumentError(
        "no combination is legal: the devices, the global batch and what is "
        "fixed do not divide; fix less, or another --global-batch or --nodes");
  }
  if (counts.memory == 0) {
    const std::string reason =
        counts.reasons.empty() ? "" : counts.reasons.begin()->first;
    return absl::InvalidArgumentError(absl::StrCat(
        "all ", counts.refused, " combinations were refused: ", reason));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("nothing fits: ", outcome.space->NameOf(*outcome.smallest),
                   " needs least, ", FormatBytes(outcome.smallest_bytes),
                   " of ", FormatBytes(outcome.limit_bytes)));
}

}  // namespace pipewright
