// The steps of MakePlan (plan.h); for sim/search only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "sim/search/plan.h"
#include "sim/search/plan_bound.h"

namespace pipewright {

class PlanSearch {
 public:
  // All must live as long as this.
  PlanSearch(PlanOutcome* outcome, const PlanOptions& options,
             RunContext* context)
      : outcome_(*outcome),
        space_(*outcome->space),
        bounds_(&space_),
        options_(options),
        context_(*context) {}

  // Fills counts, results, the front, what is kept out.
  void Run();

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

  struct OpenPoint {
    double score = 0;
    int64_t order = 0;
    PlanPoint point;
    // The smallest on top of a queue.
    friend bool operator<(const OpenPoint& one, const OpenPoint& other) {
      return std::tie(one.score, one.order) >
             std::tie(other.score, other.order);
    }
  };

  // What became of one point.
  struct Tried {
    absl::Status status;
    bool fits = true;
    double bytes = 0;
    PlanResult result;
  };

  // What is minimised, for a step of so many seconds.
  double ScoreOf(const PlanGroup& group, double seconds) const {
    return space_.request().objective == PlanObjective::kCost
               ? seconds * group.nodes * space_.devices_per_node()
               : seconds;
  }

  void MakeGroups();

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
  void Explore();
  void OpenGroups(double until);
  void KeepOut(const PlanPoint& point, double bytes, double score);
  void TryPoints(double until);
  int64_t OffloadIndex(const PlanPoint& point) const {
    const std::vector<OffloadMode>& all = space_.offloads();
    return std::find(all.begin(), all.end(), point.offload) - all.begin();
  }
  void Try(const OpenPoint& open, Tried* tried);
  void Take(const OpenPoint& open, Tried tried);
  double Slack(const PlanGroup& group) const;
  void Confirm();
  void Close();

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

}  // namespace pipewright
