// What the search does with the points that `fast` has simulated: the best of
// them on simgrid, and the order of all.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/run/simulated_run.h"
#include "sim/search/plan_search.h"

namespace pipewright {
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

// On simgrid, in the order of what fast says, which no contention makes
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
          known =
              std::max(known, ScoreOf(result.point.group, *result.confirmed_s));
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

}  // namespace pipewright
