// One question to several clusters: the best plan of each and which of them
// answers, or the fewest nodes whose best plan is fast enough. What is said of
// a cluster is what MakePlan says of it alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/search/plan.h"

namespace pipewright {

class Json;

// What a plan must reach: one of the two, or nothing.
struct PlanTarget {
  std::optional<double> step_s;        // at most
  std::optional<double> tokens_per_s;  // at least
  bool is_given() const { return step_s || tokens_per_s; }
};

struct PlanQuestion {
  std::vector<PlanRequest> clusters;
  PlanTarget target;
  // Fewest nodes of each cluster that reach the target, among NodesUpTo.
  bool least = false;
  std::optional<double> tokens;  // of the whole training
};

struct PlanCluster {
  std::string system;
  int nodes = 1;
  absl::Status status;                   // of MakePlan, or PlanVerdict
  std::shared_ptr<PlanOutcome> outcome;  // null: an error of MakePlan
  bool meets = false;                    // it fits, and reaches the target

  bool fits() const { return outcome != nullptr && !outcome->ranked.empty(); }
};

struct PlanClusters {
  PlanTarget target;
  std::optional<double> tokens;
  std::vector<PlanCluster> rows;
  // The one with the fewest devices that reaches the target, else with the best
  // score of a sample; nothing if none does or fits.
  std::optional<size_t> answer;
};

// Powers of two, 3, 5 and 7 times these, and `most`, in their order: the
// numbers of nodes that are tried up to `most`.
std::vector<int> NodesUpTo(int most);

// Error: that of MakePlan if it has one for every cluster. With `least` a row
// that reaches nothing is that of all nodes, or of those whose search was cut.
absl::StatusOr<PlanClusters> ComparePlans(const PlanQuestion& question,
                                          const PlanOptions& options,
                                          RunContext* context);

// OK if there is an answer; kCancelled if there is none and a search was cut;
// kResourceExhausted if nothing reaches the target or fits; else the first
// row's.
absl::Status ClustersVerdict(const PlanClusters& clusters);

// "dgx-h100, 8 nodes".
std::string ClusterName(const PlanCluster& row);
// A table, and which row answers.
std::string ClustersToText(const PlanClusters& clusters);
Json ClustersToJson(const PlanClusters& clusters);

}  // namespace pipewright
