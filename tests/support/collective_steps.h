// All-reduces that are no rings over all members, spelled out step by step
// (step_flows.h): what the product states as phases is held against them.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "sim/topology/cluster.h"
#include "tests/support/step_flows.h"

namespace pipewright {

// [node - 1] parents of the in-order tree over low..high, built from the root.
void TreeByHalves(int low, int high, int parent, std::vector<int>* parents);

class CollectiveSteps {
 public:
  // [node] the devices that it has in the group.
  using Nodes = std::vector<std::vector<int>>;

  explicit CollectiveSteps(const Cluster& cluster) : cluster_(cluster) {}

  // From `start_s` on. Chunk by chunk over two trees for each device that every
  // node has; the other devices of a node are a chain behind that one.
  void AddTrees(const Nodes& nodes, double bytes, double start_s = 0);
  // Rings inside the nodes, rings over them, rings inside again. Every node has
  // as many devices.
  void AddHierarchy(const Nodes& nodes, double bytes, double start_s = 0);

  // Last end of all of them together.
  double LastEnd() const { return pipewright::LastEnd(cluster_, steps_); }

 private:
  int Add(int edge, int from, int to, double bytes, std::vector<int> after);
  using Waits = std::map<int, std::vector<int>>;  // [device] for which steps
  Waits AddRings(const Nodes& rings, int count, double bytes, Waits before);
  void AddTree(const Nodes& nodes, size_t head, bool second, int chunks,
               double chunk);

  const Cluster& cluster_;
  double start_s_ = 0;
  int edges_ = 0;  // kinds of edges so far
  std::vector<StepFlow> steps_;
  // Steps over one edge come one after the other: the last so far.
  std::map<std::tuple<int, int, int>, int> last_;
};

}  // namespace pipewright
