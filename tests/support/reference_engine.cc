#include "tests/support/reference_engine.h"

#include <algorithm>

#include "tests/support/reference_graph.h"

namespace pipewright {

bool ReferenceGraph::Solve() {
  std::vector<std::vector<int>> next(nodes_.size());
  std::vector<size_t> missing(nodes_.size());
  std::vector<int> ready;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    missing[node] = nodes_[node].after.size();
    if (missing[node] == 0) ready.push_back(static_cast<int>(node));
    for (const int other : nodes_[node].after) {
      next[other].push_back(static_cast<int>(node));
    }
  }
  size_t solved = 0;
  while (!ready.empty()) {
    ReferenceNode& node = nodes_[ready.back()];
    const int index = ready.back();
    ready.pop_back();
    ++solved;
    node.end_s = node.start_s + node.seconds;
    for (const int other : next[index]) {
      nodes_[other].start_s = std::max(nodes_[other].start_s, node.end_s);
      if (--missing[other] == 0) ready.push_back(other);
    }
  }
  return solved == nodes_.size();
}

RunSummary ReferenceGraph::Summary() const {
  RunSummary summary;
  summary.times.assign(program_.replicas,
                       std::vector<RankTimes>(program_.pp()));
  std::vector<std::vector<bool>> seen(program_.replicas,
                                      std::vector<bool>(program_.pp(), false));
  for (const ReferencePass& pass : passes_) {
    const ReferenceNode& node = nodes_[pass.node];
    if (node.iteration > 0) continue;  // false starts come later
    RankTimes& times = summary.times[pass.replica][pass.rank];
    if (!seen[pass.replica][pass.rank]) times.first_start_s = node.start_s;
    seen[pass.replica][pass.rank] = true;
    times.last_end_s = std::max(times.last_end_s, node.end_s);
    times.busy_s += pass.seconds;
  }
  summary.iteration_end_s.assign(program_.iterations, 0);
  for (const ReferenceNode& node : nodes_) {
    if (!node.counts) continue;
    double& end_s = summary.iteration_end_s[node.iteration];
    end_s = std::max(end_s, node.end_s);
  }
  for (int replica = 0; replica < program_.replicas; ++replica) {
    summary.row_of_replica.push_back(replica);
  }
  return summary;
}

absl::StatusOr<RunSummary> RunReference(const Program& program) {
  return ReferenceGraph(program).Run();
}

}  // namespace pipewright
