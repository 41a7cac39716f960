// Sizes exactly at their limits, and what only many routes, three devices of a
// rank or three levels of switches show.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/topology/link_graph.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"
#include "tests/support/shapes.h"

namespace pipewright::topology_limits_test {
namespace {

using testing::SampleParams;

TEST_CASE("topology: limits of sizes are taken", "[topology]") {
  ShapeParams params = SampleParams("nic-switch", kMostClusterDevices, 1);
  CHECK(CompleteParams(params).ok());
  params = SampleParams("nic-switch", kMostClusterDevices / 8, 8);
  CHECK(CompleteParams(params).ok());
  ++params.nodes;
  CHECK_FALSE(CompleteParams(params).ok());
  const ShapeParam& sides = *FindShapeParam(*FindShape("torus"), "sides");
  CHECK(CheckShapeParam(sides, "sides", "1024x1024").ok());
  CHECK(CheckShapeParam(sides, "sides", "1024x1024x1").ok());
  CHECK_FALSE(CheckShapeParam(sides, "sides", "1024x1025").ok());
}

TEST_CASE("topology: limits of a host's flush are taken", "[topology]") {
  const auto system = [](const char* rate) {
    return ParseSystem(
        absl::StrCat("name: 'box' shape: 'node' device_name: 'X1'\n"
                     "memory { value: '16GiB' source: 's' }\n"
                     "devices_per_node { value: 1 source: 's' }\n"
                     "nics_per_node { value: 1 source: 's' }\n"
                     "pcie_per_switch { value: 1 source: 's' }\n"
                     "host_flush_rate { value: ",
                     rate,
                     " source: 's' }\n"
                     "nic { bandwidth { value: '1GBps' source: 's' }\n"
                     "      latency { value: '1us' source: 's' } }\n"
                     "pcie { bandwidth { value: '1GBps' source: 's' }\n"
                     "       latency { value: '1us' source: 's' } }\n"),
        "box");
  };
  const auto least = system("1");
  INFO(least.status());
  REQUIRE(least.ok());
  CHECK(least->host.flush_rate == 1);
  CHECK_FALSE(system("0.99").ok());
}

// The first crosses sites, the last stays in its node.
TEST_CASE("topology: many routes together are as few are", "[topology]") {
  ShapeParams params = SampleParams("multi-site", 4, 8);
  params.own = {{"nodes_per_site", "2"},
                {"site_bandwidth", "1GBps"},
                {"site_latency", "5ms"}};
  const Cluster cluster = BuildCluster(params).value();
  for (const int count : {2, 31, 32, 40}) {
    CAPTURE(count);
    std::vector<std::pair<int, int>> pairs = {{0, 31}};
    std::vector<std::vector<LinkId>> routes = {cluster.Route(0, 31)};
    for (int pair = 1; pair < count; ++pair) {
      const int from = pair * 7 % 32;
      const int to = pair + 1 < count ? pair * 11 % 32 : from ^ 1;
      pairs.emplace_back(from, to);
      routes.push_back(cluster.Route(from, to));
    }
    const FlowBundle together = cluster.BundleBetween(pairs);
    const FlowBundle each = cluster.Bundle(routes, {});
    CHECK(together.latency_s == each.latency_s);
    CHECK(together.latency_s > 5e-3);
    REQUIRE(together.loads.size() == each.loads.size());
    for (size_t load = 0; load < each.loads.size(); ++load) {
      CHECK(together.loads[load].link == each.loads[load].link);
      CHECK(together.loads[load].flows == each.loads[load].flows);
    }
  }
}

TEST_CASE("topology: a switch stands one above what it joins", "[topology]") {
  ShapeParams params = SampleParams("fat-tree", 8, 1);
  params.own = {{"nodes_per_leaf", "2"}, {"leaves_per_pod", "2"}};
  const LinkGraph graph = GraphOf(BuildCluster(params).value());
  const std::vector<int> heights = graph.Heights();
  // Leaves, spines of pods, the core.
  CHECK(*std::max_element(heights.begin(), heights.end()) == 3);
  for (const LinkGraph::Edge& edge : graph.edges) {
    CHECK(std::abs(heights[edge.from] - heights[edge.to]) == 1);
  }
}

TEST_CASE("mapping: three devices that stand apart are named", "[topology]") {
  const Cluster cluster = testing::AnyCluster(1, 8);
  const auto text = [&](int devices) {
    return RankMapping::FromOrder("dp-tp-pp", 1, 2, 8, devices)
        .value()
        .ToString(cluster);
  };
  CHECK(text(3) ==
        "rank 0: node0/gpu0, node0/gpu2 to node0/gpu4  "
        "node0/gpu1, node0/gpu3 to node0/gpu5\n");
  CHECK(text(2) == "rank 0: node0/gpu0, node0/gpu2  node0/gpu1, node0/gpu3\n");
}

}  // namespace
}  // namespace pipewright::topology_limits_test
