// Collectives that are no rings over all members, against their steps spelled
// out one by one.
#include "sim/program/collective_phases.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "sim/engine/event_run.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/topology/mapping.h"
#include "sim/trace/trace.h"
#include "tests/support/collective_steps.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::collective_phases_test {
namespace {

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

// [node] the devices of the members.
CollectiveSteps::Nodes NodesOf(const Fabric& fabric) {
  std::map<int, std::vector<int>> nodes;
  for (const Member& member : fabric.members) {
    const int device =
        fabric.network.mapping->DeviceOf(member.replica, member.rank);
    nodes[fabric.cluster->devices()[device].node].push_back(device);
  }
  CollectiveSteps::Nodes all;
  for (auto& [node, devices] : nodes) all.push_back(std::move(devices));
  return all;
}

// The distance that was measured between trees as one bundle and their chunks:
// least where a tree sends a single chunk.
TEST_CASE("collectives: trees are near their chunks for every size",
          "[program]") {
  struct Case {
    int nodes;
    int devices;
    double low;
    double high;
  };
  for (const Case& shape : std::vector<Case>{{2, 1, 0.83, 1.01},
                                             {3, 1, 0.87, 1.01},
                                             {16, 1, 0.93, 1.07},
                                             {64, 1, 0.93, 1.07},
                                             {2, 8, 0.85, 1.11},
                                             {5, 4, 0.89, 1.07},
                                             {8, 8, 0.90, 1.06},
                                             {16, 8, 0.90, 1.06}}) {
    const Fabric fabric = MakeFabric(shape.nodes, shape.devices);
    for (const double bytes : {1e4, 1e5, 1e6, 2e6, 8e6, 32e6, 128e6, 256e6}) {
      if (bytes * shape.nodes * shape.devices > 1.7e10) continue;  // takes long
      const std::vector<CollectivePhase> phases =
          TreePhases(fabric.network, bytes, fabric.members);
      REQUIRE(phases.size() == 1);
      CollectiveSteps steps(*fabric.cluster);
      steps.AddTrees(NodesOf(fabric), bytes);
      const double ratio = SecondsOf(*fabric.cluster, phases) / steps.LastEnd();
      INFO(shape.nodes << " nodes of " << shape.devices << ", " << bytes
                       << " bytes: " << ratio);
      const bool one_chunk = bytes <= 1e6;
      CHECK(ratio >= (one_chunk ? 0.99 : shape.low));
      CHECK(ratio <= (one_chunk ? 1.04 : shape.high));
    }
  }
}

TEST_CASE("collectives: trees of uneven nodes are near their chunks",
          "[program]") {
  for (const int left : {1, 4, 7}) {
    Fabric fabric = MakeFabric(3, 8);
    fabric.members.resize(16 + left);
    for (const double bytes : {1e4, 1e6, 8e6, 64e6}) {
      CollectiveSteps steps(*fabric.cluster);
      steps.AddTrees(NodesOf(fabric), bytes);
      INFO(left << " devices on the last node, " << bytes << " bytes");
      CHECK(SecondsOf(*fabric.cluster,
                      TreePhases(fabric.network, bytes, fabric.members)) ==
            Approx(steps.LastEnd()).epsilon(0.25));
    }
  }
}

TEST_CASE("collectives: two levels of rings are their steps", "[program]") {
  for (const int nodes : {2, 16, 64}) {
    const Fabric fabric = MakeFabric(nodes, 8);
    const double bytes = 256e6;
    const std::vector<CollectivePhase> phases = HierarchicalPhases(
        fabric.network, CollectiveKind::kAllReduce, bytes, fabric.members);
    REQUIRE(phases.size() == 3);
    CollectiveSteps steps(*fabric.cluster);
    steps.AddHierarchy(NodesOf(fabric), bytes);
    CHECK(SecondsOf(*fabric.cluster, phases) ==
          Approx(steps.LastEnd()).epsilon(1e-9));
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

// Three devices a rank, eight a node: device 2 of the second stage's first
// replica is on another node than devices 0 and 1.
TEST_CASE("collectives: not offered where devices of a rank straddle nodes",
          "[program]") {
  const Fabric fabric = MakeFabric(2, 8);
  Network network = fabric.network;
  const auto mapping = RankMapping::FromOrder("dp-pp", 2, 2, 16, 3);
  REQUIRE(mapping.ok());
  network.mapping = std::make_shared<const RankMapping>(*mapping);
  bool straddles = false;
  for (const int rank : {0, 1}) {
    const std::vector<Member> members = {{0, rank}, {1, rank}};
    std::vector<size_t> spans;
    for (int index = 0; index < 3; ++index) {
      std::set<int> nodes;
      for (const Member& member : members) {
        nodes.insert(fabric.cluster
                         ->devices()[network.mapping->DeviceOf(member.replica,
                                                               rank, index)]
                         .node);
      }
      spans.push_back(nodes.size());
    }
    if (spans == std::vector<size_t>(3, spans[0])) continue;
    straddles = true;
    CHECK(TreePhases(network, 1e9, members).empty());
    CHECK(HierarchicalPhases(network, CollectiveKind::kAllReduce, 1e9, members)
              .empty());
  }
  CHECK(straddles);
}

// Several devices a rank: each of them has trees of its own, all at once.
TEST_CASE("collectives: trees of two devices a rank are near their chunks",
          "[program]") {
  const Fabric fabric = MakeFabric(16, 8);
  Network network = fabric.network;
  const auto mapping = RankMapping::FromOrder("dp-pp", 1, 64, 128, 2);
  REQUIRE(mapping.ok());
  network.mapping = std::make_shared<const RankMapping>(*mapping);
  std::vector<Member> members;
  for (int replica = 0; replica < 64; ++replica)
    members.push_back({replica, 0});
  for (const double bytes : {1e5, 2e6, 32e6}) {
    CollectiveSteps steps(*fabric.cluster);
    for (int index = 0; index < 2; ++index) {
      CollectiveSteps::Nodes nodes(16);
      for (const Member& member : members) {
        const int device = mapping->DeviceOf(member.replica, 0, index);
        nodes[fabric.cluster->devices()[device].node].push_back(device);
      }
      steps.AddTrees(nodes, bytes);
    }
    INFO(bytes);
    CHECK(SecondsOf(*fabric.cluster, TreePhases(network, bytes, members)) ==
          Approx(steps.LastEnd()).epsilon(0.1));
  }
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
      for (const auto run : {&RunOnFluidClock, &RunSimgrid}) {
        const auto shared = run(program, {});
        INFO(shared.status());
        REQUIRE(shared.ok());
        CHECK(shared->iteration_s() ==
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

// Meetings of a group follow each other, whatever their sizes.
TEST_CASE("collectives: sizes of one group do not share links with each other",
          "[program]") {
  const Fabric fabric = MakeFabric(4, 4);
  const auto schedule =
      Parsed("pp 1 vpp 2 microbatches 1\n0: F0.0 F0.1 BW0.1 BW0.0");
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  options.data_parallel = DataParallel::kDdp;
  options.replicas = 16;
  options.gradient_bytes = {1e6, 3e6};
  options.network = fabric.network;
  options.network.collectives = CollectiveAlgorithm::kHierarchical;
  const Program program = Lowered(schedule, options);
  const EventRun run(program, {});
  CHECK(run.sources().size() == 2);  // NVLink, cards
  for (const SourcePlan& plan : run.plans()) {
    CHECK(plan.sharing == Sharing::kNone);
  }
}

// Two groups, of even and of odd devices, over the same cards. They start at
// different times and have different sizes, so they meet for a part of them.
TEST_CASE("collectives: two groups that meet are near their steps",
          "[program][long]") {
  for (const CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::kTree, CollectiveAlgorithm::kHierarchical}) {
    const bool trees = algorithm == CollectiveAlgorithm::kTree;
    for (const int nodes : {4, 16, 64}) {
      const int devices = trees ? 2 : 4;  // a node; two share a card
      const Fabric fabric = MakeFabric(nodes, devices, 2);
      std::vector<int> places(nodes * devices);
      std::iota(places.begin(), places.end(), 0);
      const auto schedule =
          Parsed("pp 2 vpp 1 microbatches 1\n0: F0 BW0\n1: F0 BW0");
      LowerOptions options;
      options.costs = CostsOf(
          *schedule,
          {.forward = 0, .backward_input = 0.003, .backward_weight = 0});
      options.data_parallel = DataParallel::kDdp;
      options.replicas = nodes * devices / 2;
      options.gradient_bytes = {128e6, 256e6};
      options.network = NetworkOf(fabric.cluster, places, 2, options.replicas);
      options.network.collectives = algorithm;
      Program program = Lowered(schedule, options);
      for (Channel& channel : program.channels) channel.bytes = 0;
      for (const auto engine : {&RunOnFluidClock, &RunSimgrid}) {
        INFO(trees << " " << nodes << " nodes, simgrid "
                   << (engine == &RunSimgrid));
        FullTrace trace;
        const auto run = engine(program, {.trace = &trace});
        INFO(run.status());
        REQUIRE(run.ok());
        std::vector<double> start_s(2, 1e9);  // [rank]
        std::vector<double> end_s(2, 0);
        for (const TraceOp& op : trace.ops()) {
          if (op.kind != OpKind::kAllReduce || op.iteration > 0) continue;
          start_s[op.rank] = std::min(start_s[op.rank], op.start_s);
          end_s[op.rank] = std::max(end_s[op.rank], op.end_s);
        }
        REQUIRE(start_s[1] < start_s[0]);
        REQUIRE(start_s[0] < end_s[1]);
        CollectiveSteps steps(*fabric.cluster);
        for (const int rank : {0, 1}) {
          CollectiveSteps::Nodes group(nodes);
          for (int device = rank; device < nodes * devices; device += 2) {
            group[device / devices].push_back(device);
          }
          const double bytes = options.gradient_bytes[rank];
          if (trees) {
            steps.AddTrees(group, bytes, start_s[rank]);
          } else {
            steps.AddHierarchy(group, bytes, start_s[rank]);
          }
        }
        CHECK(std::max(end_s[0], end_s[1]) ==
              Approx(steps.LastEnd()).epsilon(0.02));
      }
    }
  }
}

}  // namespace
}  // namespace pipewright::collective_phases_test
