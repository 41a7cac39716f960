// Collectives that are no rings over all members, against their steps spelled
// out one by one.
#include "sim/program/collective_phases.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"
#include "tests/support/step_flows.h"

namespace pipewright {
namespace {

// [node - 1] parents of the in-order tree over low..high, built from the root.
void TreeByHalves(int low, int high, int parent, std::vector<int>* parents) {
  if (low > high) return;
  int size = 1;
  while (2 * size <= high - low + 1) size *= 2;
  const int root = low + size - 1;
  (*parents)[root - 1] = parent;
  TreeByHalves(low, root - 1, root, parents);
  TreeByHalves(root + 1, high, root, parents);
}

TEST_CASE("collectives: two trees, one's leaves are the other's inner nodes",
          "[program]") {
  for (int nodes = 1; nodes <= 70; ++nodes) {
    INFO(nodes);
    std::vector<int> parents(nodes);
    TreeByHalves(1, nodes, 0, &parents);
    std::vector<int> children(nodes + 1);
    for (int node = 1; node <= nodes; ++node) {
      CHECK(TreeParent(node, nodes) == parents[node - 1]);
      ++children[parents[node - 1]];
    }
    std::vector<int> places;
    int inner_twice = 0;
    for (int node = 1; node <= nodes; ++node) {
      CHECK(children[node] <= 2);
      places.push_back(PlaceInSecondTree(node, nodes));
      inner_twice += children[node] > 0 && children[places.back()] > 0;
    }
    CHECK(inner_twice <= (nodes % 2 == 0 ? 0 : 1));
    std::sort(places.begin(), places.end());
    std::vector<int> all(nodes);
    std::iota(all.begin(), all.end(), 1);
    CHECK(places == all);
  }
}

struct Fabric {
  std::shared_ptr<const Cluster> cluster;
  Network network;
  std::vector<Member> members;
};

Fabric MakeFabric(int nodes, int devices, int devices_per_card = 1) {
  ShapeParams shape = SmallFabric(nodes, devices, devices / devices_per_card);
  shape.nvlink = {.bytes_per_s = 450e9, .latency_s = 1e-6, .source = "test"};
  shape.nic = {.bytes_per_s = 25e9, .latency_s = 2e-6, .source = "test"};
  shape.pcie = {.bytes_per_s = 25e9, .latency_s = 1e-6, .source = "test"};
  auto cluster = BuildCluster(shape);
  REQUIRE(cluster.ok());
  Fabric fabric;
  fabric.cluster = std::make_shared<const Cluster>(*std::move(cluster));
  std::vector<int> places(nodes * devices);
  std::iota(places.begin(), places.end(), 0);
  for (const int place : places) fabric.members.push_back({place, 0});
  fabric.network =
      NetworkOf(fabric.cluster, places, 1, static_cast<int>(places.size()));
  return fabric;
}

// Adds steps, and knows which was the last one over each edge.
class Steps {
 public:
  explicit Steps(const Cluster& cluster) : cluster_(cluster) {}
  int Add(int edge, int from, int to, double bytes, std::vector<int> after) {
    const std::vector<LinkId> route = cluster_.Route(from, to);
    const auto last = last_.find({edge, from, to});
    if (last != last_.end()) after.push_back(last->second);
    steps_.push_back({.links = route,
                      .bytes = bytes,
                      .latency_s = cluster_.Bundle({route}).latency_s,
                      .after = std::move(after)});
    return last_[{edge, from, to}] = static_cast<int>(steps_.size()) - 1;
  }
  double LastEnd() const { return pipewright::LastEnd(cluster_, steps_); }

 private:
  const Cluster& cluster_;
  std::vector<StepFlow> steps_;
  std::map<std::tuple<int, int, int>, int> last_;
};

// An all-reduce of `bytes` over one device a node, chunk by chunk.
void AddTrees(int name, int nodes, double bytes, Steps* steps) {
  const int chunks = static_cast<int>(std::ceil(bytes / 2 / 524288));
  const double chunk = bytes / 2 / chunks;
  for (const bool second : {false, true}) {
    std::vector<int> device(nodes + 1);  // [place]
    for (int node = 1; node <= nodes; ++node) {
      device[second ? PlaceInSecondTree(node, nodes) : node] = node - 1;
    }
    std::vector<int> parents(nodes);
    TreeByHalves(1, nodes, 0, &parents);
    std::vector<std::vector<int>> children(nodes + 1);
    for (int node = 1; node <= nodes; ++node) {
      children[parents[node - 1]].push_back(node);
    }
    const int root = children[0][0];
    std::vector<int> down_from_root{root};
    for (size_t next = 0; next < down_from_root.size(); ++next) {
      for (const int child : children[down_from_root[next]]) {
        down_from_root.push_back(child);
      }
    }
    const int up = 4 * name + 2 * (second ? 1 : 0);
    for (int part = 0; part < chunks; ++part) {
      std::vector<std::vector<int>> has(nodes + 1);  // [place] waits for
      for (auto node = down_from_root.rbegin(); node != down_from_root.rend();
           ++node) {
        if (*node == root) continue;
        const int parent = parents[*node - 1];
        has[parent].push_back(
            steps->Add(up, device[*node], device[parent], chunk, has[*node]));
      }
      std::vector<int> got(nodes + 1, -1);
      for (const int node : down_from_root) {
        for (const int child : children[node]) {
          got[child] = steps->Add(
              up + 1, device[node], device[child], chunk,
              node == root ? has[root] : std::vector<int>{got[node]});
        }
      }
    }
  }
}

// Steps of rings of equal length, `rounds` times around. `before` and the
// result: [device] what its next step waits for.
std::vector<std::vector<int>> AddRings(
    int name, const std::vector<std::vector<int>>& rings, int count,
    double bytes, std::vector<std::vector<int>> before, Steps* steps) {
  for (int step = 0; step < count; ++step) {
    std::vector<std::vector<int>> after(before.size());
    for (const std::vector<int>& ring : rings) {
      for (size_t at = 0; at < ring.size(); ++at) {
        const int to = ring[(at + 1) % ring.size()];
        after[to].push_back(
            steps->Add(name, ring[at], to, bytes, before[ring[at]]));
      }
    }
    before = std::move(after);
  }
  return before;
}

void AddHierarchy(int name, int nodes, int devices, double bytes,
                  Steps* steps) {
  std::vector<std::vector<int>> inside(nodes);
  std::vector<std::vector<int>> between(devices);
  for (int device = 0; device < nodes * devices; ++device) {
    inside[device / devices].push_back(device);
    between[device % devices].push_back(device);
  }
  std::vector<std::vector<int>> state(nodes * devices);
  const double part = bytes / devices;
  state = AddRings(3 * name, inside, devices - 1, part, state, steps);
  state = AddRings(3 * name + 1, between, 2 * (nodes - 1), part / nodes, state,
                   steps);
  AddRings(3 * name + 2, inside, devices - 1, part, state, steps);
}

// Several of these at once: the rates of all are so much smaller.
double PhasesSeconds(const Cluster& cluster,
                     const std::vector<CollectivePhase>& phases, int at_once) {
  double seconds = 0;
  for (const CollectivePhase& phase : phases) {
    std::vector<StepFlow> flows;
    double share = cluster.RateOf(phase.loads) / at_once;
    seconds += phase.latency_s + phase.bytes / share;
  }
  return seconds;
}

TEST_CASE("collectives: trees are their chunks to 2 %, alone and meeting",
          "[program]") {
  for (const int nodes : {16, 64}) {
    const Fabric fabric = MakeFabric(nodes, 1);
    const double bytes = 256e6;
    const std::vector<CollectivePhase> phases =
        TreePhases(fabric.network, bytes, fabric.members);
    REQUIRE(phases.size() == 1);
    for (const int at_once : {1, 2}) {
      INFO(nodes << " nodes, at once " << at_once);
      Steps steps(*fabric.cluster);
      for (int name = 0; name < at_once; ++name) {
        AddTrees(name, nodes, bytes, &steps);
      }
      const double expected_s = steps.LastEnd();
      CHECK(PhasesSeconds(*fabric.cluster, phases, at_once) ==
            Approx(expected_s).epsilon(0.02));
    }
  }
}

TEST_CASE("collectives: two levels of rings are their steps", "[program]") {
  for (const int nodes : {2, 8}) {
    const int devices = 8;
    const Fabric fabric = MakeFabric(nodes, devices);
    const double bytes = 256e6;
    const std::vector<CollectivePhase> phases = HierarchicalPhases(
        fabric.network, CollectiveKind::kAllReduce, bytes, fabric.members);
    REQUIRE(phases.size() == 3);
    for (const int at_once : {1, 2}) {
      INFO(nodes << " nodes, at once " << at_once);
      Steps steps(*fabric.cluster);
      for (int name = 0; name < at_once; ++name) {
        AddHierarchy(name, nodes, devices, bytes, &steps);
      }
      const double epsilon = at_once == 1 ? 1e-9 : 0.02;
      CHECK(PhasesSeconds(*fabric.cluster, phases, at_once) ==
            Approx(steps.LastEnd()).epsilon(epsilon));
    }
    // The halves of an all-reduce.
    const auto seconds = [&](CollectiveKind kind) {
      return SecondsOf(
          *fabric.cluster,
          HierarchicalPhases(fabric.network, kind, bytes, fabric.members));
    };
    CHECK(seconds(CollectiveKind::kReduceScatter) +
              seconds(CollectiveKind::kAllGather) ==
          Approx(seconds(CollectiveKind::kAllReduce)));
  }
}

TEST_CASE("collectives: not offered where there is one level", "[program]") {
  const Fabric node = MakeFabric(1, 8);
  const Fabric singles = MakeFabric(8, 1);
  Fabric uneven = MakeFabric(2, 4);
  uneven.members.pop_back();
  const Fabric& left = uneven;
  for (const Fabric* fabric : {&node, &singles, &left}) {
    CHECK(HierarchicalPhases(fabric->network, CollectiveKind::kAllReduce, 1e6,
                             fabric->members)
              .empty());
  }
  CHECK(TreePhases(node.network, 1e6, node.members).empty());
  CHECK(TreePhases(uneven.network, 1e6, uneven.members).size() == 1);
}

Program AllReduces(const Fabric& fabric, CollectiveAlgorithm algorithm,
                   double bytes) {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  options.data_parallel = DataParallel::kDdp;
  options.replicas = static_cast<int>(fabric.members.size());
  options.gradient_bytes = {bytes};
  options.network = fabric.network;
  options.network.collectives = algorithm;
  return Lowered(schedule, options);
}

TEST_CASE("collectives: engines run every algorithm, and the fastest is it",
          "[program]") {
  const Fabric fabric = MakeFabric(8, 8);
  std::map<CollectiveAlgorithm, int> chosen;
  for (double bytes = 1024; bytes < 4e9; bytes *= 8) {
    INFO(bytes);
    double least_s = 1e9;
    for (const CollectiveAlgorithm algorithm :
         {CollectiveAlgorithm::kRing, CollectiveAlgorithm::kTree,
          CollectiveAlgorithm::kHierarchical, CollectiveAlgorithm::kFastest}) {
      const Program program = AllReduces(fabric, algorithm, bytes);
      const CollectivePlan plan =
          PlanCollective(program, OpKind::kAllReduce, bytes,
                         GroupMembers(program, program.groups[0], 0));
      const auto fast = RunFast(program, {});
      REQUIRE(fast.ok());
      for (const bool native : {false, true}) {
        const auto simgrid = RunSimgrid(program, {.native_flows = native});
        INFO(simgrid.status());
        REQUIRE(simgrid.ok());
        CHECK(simgrid->iteration_s() ==
              Approx(fast->iteration_s()).epsilon(1e-9));
      }
      if (algorithm == CollectiveAlgorithm::kFastest) {
        CHECK(plan.seconds == least_s);
        ++chosen[plan.algorithm];
      } else {
        CHECK(plan.algorithm == algorithm);
        least_s = std::min(least_s, plan.seconds);
      }
    }
  }
  // By size: none is the best for all of them.
  CHECK(chosen.size() >= 2);
}

// Two groups, of even and of odd devices, that reduce at a time over the same
// cards: half of them each. NVLink is nobody's but the own.
TEST_CASE("collectives: phases of two groups share cards", "[program]") {
  for (const CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::kTree, CollectiveAlgorithm::kHierarchical}) {
    const Fabric fabric = MakeFabric(4, 4, 2);
    std::vector<int> places(16);
    std::iota(places.begin(), places.end(), 0);
    const auto schedule =
        Parsed("pp 2 vpp 1 microbatches 1\n0: F0 BW0\n1: F0 BW0");
    LowerOptions options;
    options.costs = CostsOf(
        *schedule, {.forward = 0, .backward_input = 0, .backward_weight = 0});
    options.data_parallel = DataParallel::kDdp;
    options.replicas = 8;
    options.gradient_bytes = {1e9, 1e9};
    options.network = NetworkOf(fabric.cluster, places, 2, 8);
    options.network.collectives = algorithm;
    Program program = Lowered(schedule, options);
    // No hops: both begin at once.
    for (Channel& channel : program.channels) channel.bytes = 0;
    const CollectivePlan plan =
        PlanCollective(program, OpKind::kAllReduce, 1e9,
                       GroupMembers(program, program.groups[0], 0));
    REQUIRE(plan.algorithm == algorithm);
    double expected_s = 0;
    int limited = 0;
    for (const CollectivePhase& phase : plan.phases) {
      const double rate = fabric.cluster->RateOf(phase.loads);
      const bool by_cards = std::any_of(
          phase.loads.begin(), phase.loads.end(), [&](const LinkLoad& load) {
            const Link& link = fabric.cluster->links()[load.link];
            return link.bytes_per_s == 25e9 &&
                   link.bytes_per_s / load.flows == rate;
          });
      limited += by_cards ? 1 : 0;
      expected_s += phase.latency_s + phase.bytes / rate * (by_cards ? 2 : 1);
    }
    CHECK(limited == 1);
    for (const bool native : {false, true}) {
      const auto run = RunSimgrid(program, {.native_flows = native});
      REQUIRE(run.ok());
      CHECK(run->iteration_s() == Approx(expected_s).epsilon(1e-4));
      CHECK(run->flows > 0);
    }
  }
}

}  // namespace
}  // namespace pipewright
