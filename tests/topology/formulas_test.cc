// Hop counts, bisection bandwidth and loads under uniform traffic, of shapes
// against closed formulas of the literature. Hops are counted on routes;
// bisections come from a maximum flow over the links that routes show
// (sim/topology/link_graph.h); loads from all routes at once.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/topology/link_graph.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"
#include "tests/support/shapes.h"

namespace pipewright::formulas_test {
namespace {

using testing::SampleParams;
constexpr double kNic = 25e9;  // as in SampleParams

ShapeParams Params(const char* shape, int nodes, int devices,
                   const ShapeParamValues& own) {
  ShapeParams params = SampleParams(shape, nodes, devices);
  for (const auto& [key, value] : own) params.own[key] = value;
  return params;
}

Cluster Built(const char* shape, int nodes, int devices,
              const ShapeParamValues& own) {
  return BuildCluster(Params(shape, nodes, devices, own)).value();
}

// Rate at which `is_left` nodes can send to the others.
double Bisection(const Cluster& cluster,
                 const std::function<bool(int)>& is_left) {
  const LinkGraph graph = GraphOf(cluster);
  std::vector<bool> side(graph.nodes);
  for (int node = 0; node < graph.nodes; ++node) side[node] = is_left(node);
  return CutBandwidth(cluster, graph, side);
}

// How many of the links have each load when every device sends one message to
// every other; by a part of their names.
std::map<double, int> AllToAllLoads(const Cluster& cluster,
                                    const std::string& part) {
  std::vector<std::vector<LinkId>> routes;
  for (int from = 0; from < cluster.num_devices(); ++from) {
    for (int to = 0; to < cluster.num_devices(); ++to) {
      if (from != to) routes.push_back(cluster.Route(from, to));
    }
  }
  std::map<double, int> loads;
  for (const LinkLoad& load : cluster.Bundle(routes).loads) {
    const std::string& name = cluster.links()[load.link].name;
    if (absl::StrContains(name, part)) ++loads[load.flows];
  }
  return loads;
}

// Mean with one device a node; routes to itself have no hops.
double MeanHops(const Cluster& cluster) {
  double hops = 0;
  const int devices = cluster.num_devices();
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      hops += static_cast<double>(cluster.Route(from, to).size());
    }
  }
  return hops / devices / devices;
}

// W. J. Dally and B. Towles, "Principles and Practices of Interconnection
// Networks" (2004), chapter 5, torus: with uniform traffic the mean of hops is
// the sum over dimensions of k/4 (k even) or k/4 - 1/(4k) (k odd).
TEST_CASE("formulas: mean hops of a torus", "[topology]") {
  const auto mean = [](int side) {
    return side % 2 == 0 ? side / 4.0 : side / 4.0 - 1 / (4.0 * side);
  };
  for (const std::vector<int>& sides : {std::vector<int>{4, 4, 4},
                                        {8, 4, 2},
                                        {5, 3, 1},
                                        {6, 5, 2},
                                        {7, 1, 1}}) {
    const std::string text =
        absl::StrCat(sides[0], "x", sides[1], "x", sides[2]);
    INFO(text);
    const Cluster cluster =
        Built("torus", sides[0] * sides[1] * sides[2], 1, {{"sides", text}});
    CHECK(MeanHops(cluster) ==
          Approx(mean(sides[0]) + mean(sides[1]) + mean(sides[2])));
  }
}

// The same book: the bisection of a k-ary n-cube has 4 k^(n-1) channels, both
// directions together; uniform traffic puts k/8 of what a node sends on each
// channel (k even), the same on all where sides are equal.
TEST_CASE("formulas: bisection and loads of a torus", "[topology]") {
  constexpr int kSide = 4;
  constexpr int kNodes = kSide * kSide * kSide;
  const Cluster cluster = Built("torus", kNodes, 1, {{"sides", "4x4x4"}});
  // Six a node, beside two to its host.
  CHECK(cluster.links().size() == kNodes * (6 + 2));
  for (const int axis : {1, kSide, kSide * kSide}) {
    CHECK(Bisection(cluster, [&](int node) {
            return node / axis % kSide < kSide / 2;
          }) == Approx(4 * kSide * kSide / 2 * kNic));
  }
  CHECK(AllToAllLoads(cluster, "torus") ==
        std::map<double, int>{{kNodes * kSide / 8.0, kNodes * 6}});
  // The longest side has the fullest links: N * 8 / 8 of 8 x 4 x 2; two nodes
  // in a row have one cable, which takes half of what they send.
  const Cluster flat = Built("torus", 64, 1, {{"sides", "8x4x2"}});
  CHECK(AllToAllLoads(flat, "torus-x") ==
        std::map<double, int>{{64 * 8 / 8.0, 128}});
  CHECK(AllToAllLoads(flat, "torus-y") ==
        std::map<double, int>{{64 * 4 / 8.0, 128}});
  CHECK(AllToAllLoads(flat, "torus-z") == std::map<double, int>{{32, 64}});
  CHECK(Bisection(flat, [](int node) { return node % 8 < 4; }) ==
        Approx(2 * 8 * kNic));
  CHECK(Bisection(flat, [](int node) { return node < 32; }) ==
        Approx(32 * kNic));
}

// M. Al-Fares, A. Loukissas, A. Vahdat, "A Scalable, Commodity Data Center
// Network Architecture" (SIGCOMM 2008): k pods, k^3/4 hosts, (k/2)^2 cores, and
// the bisection is that of all hosts. Two hosts are 2, 4 or 6 links apart.
TEST_CASE("formulas: a k-ary fat-tree", "[topology]") {
  for (const int k : {4, 6, 8}) {
    INFO("k " << k);
    const int half = k / 2;
    const int hosts = k * half * half;
    const Cluster cluster = Built("fat-tree", hosts, 1,
                                  {{"nodes_per_leaf", absl::StrCat(half)},
                                   {"leaves_per_pod", absl::StrCat(half)}});
    CHECK(Bisection(cluster, [&](int node) { return node < hosts / 2; }) ==
          Approx(hosts / 2 * kNic));
    CHECK(MeanHops(cluster) * hosts ==
          Approx(2 * (half - 1) + 4 * (half * half - half) +
                 6 * (hosts - half * half)));
    // (k/2)^2 core switches, each with a cable to every pod.
    for (const Link& link : cluster.links()) {
      if (!absl::StartsWith(link.name, "pod")) continue;
      CHECK(link.bytes_per_s == Approx(half * half * kNic));
    }
  }
}

// Oversubscription s of a level divides what leaves it: the bisection is
// N/2 * nic / s of the leaves, and / s of the pods too with three levels.
TEST_CASE("formulas: oversubscription at each level of a fat-tree",
          "[topology]") {
  for (const double leaf : {1.0, 2.0, 3.0}) {
    for (const double pod : {1.0, 1.5, 4.0}) {
      INFO(leaf << " " << pod);
      ShapeParamValues own = {{"nodes_per_leaf", "4"},
                              {"oversubscription", absl::StrCat(leaf)}};
      const Cluster two = Built("fat-tree", 32, 2, own);
      const auto is_left = [](int node) { return node < 16; };
      CHECK(Bisection(two, is_left) == Approx(16 * 2 * kNic / leaf));
      own["leaves_per_pod"] = "2";
      own["pod_oversubscription"] = absl::StrCat(pod);
      const Cluster three = Built("fat-tree", 32, 2, own);
      CHECK(Bisection(three, is_left) == Approx(16 * 2 * kNic / leaf / pod));
      // A leaf of 8 devices, 64 in all; a pod of 16.
      CHECK(AllToAllLoads(three, "leaf") ==
            std::map<double, int>{{8 * 56, 16}});
      CHECK(AllToAllLoads(three, "pod") == std::map<double, int>{{16 * 48, 8}});
      CHECK(AllToAllLoads(three, "nic") == std::map<double, int>{{62, 128}});
      std::vector<std::vector<LinkId>> routes;
      for (int from = 0; from < 64; ++from) {
        for (int to = 0; to < 64; ++to) {
          if (from / 2 != to / 2) routes.push_back(three.Route(from, to));
        }
      }
      CHECK(three.RateOf(three.Bundle(routes).loads) ==
            Approx(std::min({kNic / 62, 8 * kNic / leaf / (8 * 56),
                             16 * kNic / leaf / pod / (16 * 48)})));
    }
  }
}

// A. Shpiner et al., "Dragonfly+: Low Cost Topology for Scaling Datacenters"
// (HiPINEB 2017): three hops between switches at most. Of g groups half send to
// half over (g/2)^2 bundles; a bundle carries all pairs of two groups.
TEST_CASE("formulas: dragonfly+", "[topology]") {
  for (const double leaf : {1.0, 2.0}) {
    for (const double global : {1.0, 3.0}) {
      INFO(leaf << " " << global);
      constexpr int kGroups = 6;
      constexpr int kOfGroup = 6;  // 3 leaves of 2 nodes
      constexpr int kNodes = kGroups * kOfGroup;
      const Cluster cluster =
          Built("dragonfly-plus", kNodes, 1,
                {{"nodes_per_leaf", "2"},
                 {"leaves_per_group", "3"},
                 {"oversubscription", absl::StrCat(leaf)},
                 {"global_oversubscription", absl::StrCat(global)}});
      const double bundle = kOfGroup * kNic / leaf / global / (kGroups - 1);
      CHECK(Bisection(cluster, [](int node) { return node < kNodes / 2; }) ==
            Approx(kGroups * kGroups / 4 * bundle));
      CHECK(AllToAllLoads(cluster, "group") ==
            std::map<double, int>{
                {kOfGroup * kOfGroup, kGroups * (kGroups - 1)}});
      CHECK(AllToAllLoads(cluster, "leaf") ==
            std::map<double, int>{{2 * (kNodes - 2), 2 * kNodes / 2}});
      CHECK(MeanHops(cluster) * kNodes ==
            Approx(2 * 1 + 4 * (kOfGroup - 2) + 5 * (kNodes - kOfGroup)));
      CHECK(cluster.Route(0, kNodes - 1).size() == 3 + 2);
    }
  }
}

// Rails of n nodes of D devices in units of m: a leaf has the m devices of its
// rail. Over the spines they send to all but their own; over NVLink first, the
// D devices of m nodes send to the receivers of one rail in other units.
TEST_CASE("formulas: rails", "[topology]") {
  constexpr int kNodes = 8, kDevices = 4, kUnit = 2;
  for (const bool spine : {false, true}) {
    INFO("spine " << spine);
    const Cluster cluster = Built("rail-optimised", kNodes, kDevices,
                                  {{"nodes_per_unit", absl::StrCat(kUnit)},
                                   {"oversubscription", "2"},
                                   {"cross_rail", spine ? "spine" : "nvlink"}});
    const double sent = spine ? kUnit * (kNodes * kDevices - kUnit) -
                                    // inside of the sender's own node
                                    kUnit * (kDevices - 1)
                              : kUnit * kDevices * (kNodes - kUnit);
    CHECK(AllToAllLoads(cluster, "rail") ==
          std::map<double, int>{{sent, 2 * kNodes / kUnit * kDevices}});
    CHECK(AllToAllLoads(cluster, "nic") ==
          std::map<double, int>{
              {kDevices * (kNodes - 1), 2 * kNodes * kDevices}});
    const double over_nvlink = (kDevices - 1) * (spine ? 1 : kNodes);
    CHECK(AllToAllLoads(cluster, "nvlink") ==
          std::map<double, int>{{over_nvlink, 2 * kNodes * kDevices}});
    CHECK(Bisection(cluster, [](int node) { return node < kNodes / 2; }) ==
          Approx(kNodes / 2 * kDevices * kNic / 2));
  }
}

TEST_CASE("formulas: sites", "[topology]") {
  const Cluster two = Built("multi-site", 8, 2,
                            {{"nodes_per_site", "4"},
                             {"site_bandwidth", "100Gbps"},
                             {"site_latency", "5ms"}});
  CHECK(Bisection(two, [](int node) { return node < 4; }) == Approx(12.5e9));
  CHECK(AllToAllLoads(two, "site") == std::map<double, int>{{8 * 8, 2}});
  // Half of four sites send to the other half over four links.
  const Cluster four = Built("multi-site", 8, 2,
                             {{"nodes_per_site", "2"},
                              {"site_bandwidth", "8Gbps"},
                              {"site_latency", "5ms"}});
  CHECK(Bisection(four, [](int node) { return node < 4; }) == Approx(4e9));
  CHECK(AllToAllLoads(four, "site") == std::map<double, int>{{4 * 4, 12}});
}

// NVIDIA GB200 NVL72 data sheet: 130 TB/s of NVLink in one domain (both
// directions). Inside it the domain is a node; between domains, NICs.
TEST_CASE("formulas: NVLink domains of 72 devices", "[topology]") {
  for (const char* name : {"gb200-nvl72", "gb300-nvl72"}) {
    ShapeParams params = FindSystem(name).value();
    params.nodes = 2;
    const Cluster cluster = BuildCluster(params).value();
    double nvlink = 0;
    for (const Link& link : cluster.links()) {
      if (!absl::StartsWith(link.name, "node0/")) continue;
      if (absl::StrContains(link.name, "nvlink")) nvlink += link.bytes_per_s;
    }
    CHECK(nvlink == Approx(130e12).epsilon(0.005));
    CHECK(AllToAllLoads(cluster, "nvlink") ==
          std::map<double, int>{{71, 2 * 2 * 72}});
    CHECK(Bisection(cluster, [](int node) { return node == 0; }) ==
          Approx(72 * params.nic.bytes_per_s));
    // The same domains in units of rails.
    params.shape = "rail-optimised";
    params.own = {{"nodes_per_unit", "1"}, {"oversubscription", "2"}};
    CHECK(Bisection(BuildCluster(params).value(), [](int node) {
            return node == 0;
          }) == Approx(36 * params.nic.bytes_per_s));
  }
}

// What the checks above are worth: a cluster whose numbers are wrong differs.
TEST_CASE("formulas: a wrong oversubscription changes the bisection",
          "[topology]") {
  Cluster cluster = Built("fat-tree", 16, 1,
                          {{"nodes_per_leaf", "2"}, {"leaves_per_pod", "2"}});
  const auto is_left = [](int node) { return node < 8; };
  CHECK(Bisection(cluster, is_left) == Approx(8 * kNic));
  for (size_t link = 0; link < cluster.links().size(); ++link) {
    if (cluster.links()[link].name == "pod1/up") {
      cluster.SlowLink(static_cast<LinkId>(link), 2);
    }
  }
  CHECK(Bisection(cluster, is_left) == Approx(6 * kNic));
}

}  // namespace
}  // namespace pipewright::formulas_test
