// Transfers spelled out step by step: each starts when those before it have
// ended and its latency is over, and shares links max-min with whatever is
// under way. What the product states of many steps at once is held against it.
#pragma once

#include <vector>

#include "sim/topology/cluster.h"

namespace pipewright {

struct StepFlow {
  std::vector<LinkId> links;
  double bytes = 0;
  double latency_s = 0;
  std::vector<int> after;  // others, by their index
};

// When the last of them ends. Aborts where they wait for each other.
double LastEnd(const Cluster& cluster, const std::vector<StepFlow>& steps);

}  // namespace pipewright
