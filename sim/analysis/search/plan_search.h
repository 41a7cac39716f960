// The steps of MakePlan (plan.h); for sim/analysis/search only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sim/analysis/search/plan.h"
#include "sim/analysis/search/plan_bound.h"

namespace pipewright {

class PlanSearch {
 public:
  // All must live as long as this.
  // `bounds`: [variant] of the outcome's space.
  PlanSearch(PlanOutcome* outcome, std::deque<PlanBounds>* bounds,
             const PlanOptions& options, RunContext* context)
      : outcome_(*outcome),
        space_(*outcome->space),
        bounds_(*bounds),
        options_(options),
        context_(*context),
        most_(options.most_score) {}

  // Fills counts and results of plain points.
  void RunPlain();
  // Fills counts, results, the front, what is kept out; `plain` is what
  // RunPlain has filled.
  void Run(const PlanOutcome& plain);

 private:
  struct OpenGroup {
    double score = 0;
    int64_t order = 0;
    PlanGroup group;
    friend bool operator<(const OpenGroup& one, const OpenGroup& other) {
      return std::tie(one.score, one.order) <
             std::tie(other.score, other.order);
    }
  };

  // All of a group but its schedule, and what orders its passes.
  using SameKey = std::pair<std::array<int64_t, 11>, const void*>;

  struct OpenPoint {
    double score = 0;
    int64_t order = 0;
    PlanPoint point;
    // With copies: `score` is that of the same run without them.
    bool is_timed = false;
    // The smallest on top of a queue.
    friend bool operator<(const OpenPoint& one, const OpenPoint& other) {
      return std::tie(one.score, one.order) >
             std::tie(other.score, other.order);
    }
  };

  // What became of one point.
  struct Tried {
    absl::Status status;
    bool is_done = false;  // not where the search was stopped before
    bool fits = true;
    double bytes = 0;
    PlanResult result;
    double without_s = -1;  // seconds without copies, where that was all
    // [rank] what is kept besides what is there all the time, or the least.
    std::map<OffloadMode, std::vector<double>> live;
  };

  PlanBounds& BoundsOf(const PlanGroup& group) const {
    return bounds_[group.variant];
  }
  // What is minimised, of a step of so many seconds: a part for each second,
  // and one that is always there, of which this is a bound.
  double ScorePerSecond(const PlanGroup& group) const;
  double FixedScore(const PlanGroup& group) const {
    return space_.request().objective == PlanObjective::kEnergy
               ? BoundsOf(group).PassJoules(group)
               : 0;
  }
  double ScoreOf(const PlanGroup& group, double seconds) const {
    return FixedScore(group) + ScorePerSecond(group) * seconds;
  }
  // Seconds of a step with that score, at most.
  double SecondsOf(const PlanGroup& group, double score) const {
    return std::max(0.0, score - FixedScore(group)) / ScorePerSecond(group);
  }

  void MakeGroups();
  bool MustStop() const {
    return options_.stops && options_.stops() != PlanCut::kNone;
  }
  int64_t tried() const {
    return outcome_.counts.tried + outcome_.counts.plain;
  }
  bool IsSpent() const {
    return options_.most_tried > 0 && tried() >= options_.most_tried;
  }
  void Report() const;

  // The margin needs a second.
  size_t exact() const { return std::max(2, options_.top); }
  // What a point must not exceed to be among the best, or to be confirmed.
  double Threshold() const {
    double most = most_;
    if (best_.size() >= exact()) most = std::min(most, *best_.rbegin());
    return std::max(most, widened_);
  }

  bool IsOut(double score) const {
    return score * (1 - kBoundRounding) > Threshold();
  }

  // Until every group and point that is left is out, or the search is cut.
  void Explore();
  void CutHere(PlanCut cut);
  // Leaves out groups that run the same passes as one that was opened.
  void DropSame(std::vector<const OpenGroup*>* batch);
  // Points of groups whose own bounds do not keep them out.
  enum class Which { kAll, kWithout, kWith };
  void OpenGroups(double until);
  void OpenWaiting(double until);
  void Open(const std::vector<const OpenGroup*>& batch, Which which);
  struct Opened {
    OpenPoint open;
    double bytes = 0;
  };
  std::vector<Opened> PointsOf(const OpenGroup& group, Which which);
  // The score that a point may have at most, confirmations included.
  double Most() const {
    return options_.confirm ? std::max(Threshold(), first_ * kMostWidened)
                            : Threshold();
  }
  void KeepOut(const PlanPoint& point, double bytes, double score);
  void TryPoints(double until);
  bool IsKnown(const OpenPoint& open);
  int64_t OffloadIndex(const PlanPoint& point) const {
    const std::vector<OffloadMode>& all = space_.offloads();
    return std::find(all.begin(), all.end(), point.offload) - all.begin();
  }
  void Try(const OpenPoint& open, Tried* tried);
  void TryWithoutCopies(const OpenPoint& open, Tried* tried);
  void Take(const OpenPoint& open, Tried tried);
  double Slack(const PlanGroup& group) const;
  void Confirm();
  void Close();

  // On fluid everything is slower; what fast finds within this of the best
  // is looked at, at most.
  static constexpr double kMostWidened = 1.02;

  PlanOutcome& outcome_;
  PlanSpace& space_;
  std::deque<PlanBounds>& bounds_;
  const PlanOptions& options_;
  RunContext& context_;
  const PlanOutcome* plain_ = nullptr;  // null: looks at these alone
  std::optional<double> left_;          // score below which nothing is left
  std::vector<OpenGroup> groups_;
  size_t next_group_ = 0;
  // Those that were opened, one for each order of passes.
  std::map<SameKey, const OpenGroup*> firsts_;
  std::map<int64_t, std::vector<std::string>> same_;  // names, by their order
  // Groups whose points with copies wait until enough of those without say how
  // fast a step must be.
  std::deque<const OpenGroup*> waiting_;
  std::priority_queue<OpenPoint> points_;
  std::set<int64_t> fitting_;  // orders without offload that fit
  // What orders keep with copies at least, by their group and mode.
  std::map<std::pair<int64_t, OffloadMode>, std::vector<double>> planned_;
  std::map<int64_t, double> without_;  // seconds of orders without copies
  std::set<int64_t> failed_;
  std::vector<PlanResult> results_;
  double first_ = std::numeric_limits<double>::infinity();
  std::optional<PlanResult> first_result_;  // the one with that score
  std::multiset<double> best_;              // scores, exact() of them at most
  double
      most_;  // score that enough plain points have at most, or that is asked
  double widened_ = 0;
};

// Fills PlanOutcome::refined.
void RefinePlan(const PlanOptions& options, PlanOutcome* outcome,
                RunContext* context);

}  // namespace pipewright
