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
    // What `score` is of; kRunWithout: with copies, of the run without them.
    // kGroup: it stands for all points of its group with copies.
    enum class Known : uint8_t { kGroup, kClosed, kReplayed, kRunWithout };
    Known known = Known::kClosed;
    bool is_refined() const { return known >= Known::kReplayed; }
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
    double without_s = -1;  // seconds without copies, where that was all
  };

  // What is minimised, for a step of so many seconds.
  double ScoreOf(const PlanGroup& group, double seconds) const {
    return space_.request().objective == PlanObjective::kCost
               ? seconds * group.nodes * space_.devices_per_node()
               : seconds;
  }

  void MakeGroups();

  // What a point must not exceed to be among the best, or to be confirmed.
  double Threshold() const {
    if (best_.size() < kExact) return std::numeric_limits<double>::infinity();
    return std::max(*best_.rbegin(), widened_);
  }

  bool IsOut(double score) const {
    return score * (1 - kBoundRounding) > Threshold();
  }

  // Until every group and point that is left is out. Points with copies wait
  // until enough of those without say how fast a step must be.
  void Explore();
  void OpenGroups(double until);
  void KeepOut(const PlanPoint& point, double bytes, double score);
  void TryPoints(std::priority_queue<OpenPoint>* points, double until);
  void Refine(std::priority_queue<OpenPoint>* points, double until);
  // A point, or those that one stands for, with least bytes.
  struct Refined {
    OpenPoint open;
    double bytes = 0;
  };
  std::vector<Refined> RefinedOf(const OpenPoint& open, double most_s);
  bool IsDominated(const PlanPoint& point, int64_t order);
  int64_t OffloadIndex(const PlanPoint& point) const {
    const std::vector<OffloadMode>& all = space_.offloads();
    return std::find(all.begin(), all.end(), point.offload) - all.begin();
  }
  void Try(const OpenPoint& open, Tried* tried);
  void TryWithoutCopies(const PlanPoint& point, Tried* tried);
  void Take(const OpenPoint& open, Tried tried);
  double Slack(const PlanGroup& group) const;
  void Confirm();
  void Close();

  // On simgrid everything is slower; what fast finds within this of the best
  // is looked at, at most.
  static constexpr double kMostWidened = 1.02;
  // So many of the best are those of the whole space.
  static constexpr size_t kExact = 10;

  PlanOutcome& outcome_;
  PlanSpace& space_;
  PlanBounds bounds_;
  const PlanOptions& options_;
  RunContext& context_;
  std::vector<OpenGroup> groups_;
  size_t next_group_ = 0;
  size_t opened_ = 0;  // groups since points with copies were looked at
  std::priority_queue<OpenPoint> points_;
  std::priority_queue<OpenPoint> copies_;  // with copies
  std::set<int64_t> fitting_;              // orders without offload that fit
  std::set<int64_t> failed_;
  std::vector<PlanResult> results_;
  double first_ = std::numeric_limits<double>::infinity();
  std::multiset<double> best_;  // scores, kExact of them at most
  double widened_ = 0;
};

}  // namespace pipewright
