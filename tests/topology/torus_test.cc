#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/topology/registry.h"
#include "tests/support/shapes.h"

namespace pipewright::torus_test {
namespace {

using testing::LinkNames;
using testing::SampleParams;
using Strings = std::vector<std::string>;

ShapeParams Torus(int nodes, const char* sides, int devices = 1) {
  ShapeParams params = SampleParams("torus", nodes, devices);
  params.own["sides"] = sides;
  return params;
}

TEST_CASE("torus: x, then y, then z, the shorter way round", "[topology]") {
  const Cluster cluster = BuildCluster(Torus(60, "5x4x3")).value();
  // From (0,0,0) to (2,1,0) and to (4,3,2).
  CHECK(LinkNames(cluster, cluster.Route(0, 7)) ==
        Strings{"node0/nic0/torus-x-up", "node1/nic0/torus-x-up",
                "node2/nic0/torus-y-up"});
  const std::vector<LinkId> corner = cluster.Route(0, 59);
  CHECK(LinkNames(cluster, corner) == Strings{"node0/nic0/torus-x-down",
                                              "node4/nic0/torus-y-down",
                                              "node19/nic0/torus-z-down"});
  CHECK(cluster.LatencyOf(corner) == Approx(3 * 2e-6));
  CHECK(cluster.BandwidthOf(corner) == 25e9);
}

TEST_CASE("torus: neighbours have a link each way and nothing else",
          "[topology]") {
  const Cluster cluster = BuildCluster(Torus(60, "5x4x3")).value();
  for (int node = 0; node < 60; ++node) {
    const int x = node % 5, y = node / 5 % 4, z = node / 20;
    const int up[] = {(x + 1) % 5 + 5 * y + 20 * z,
                      x + 5 * ((y + 1) % 4) + 20 * z,
                      x + 5 * y + 20 * ((z + 1) % 3)};
    for (int each = 0; each < 3; ++each) {
      const std::string axis(1, static_cast<char>('x' + each));
      CHECK(LinkNames(cluster, cluster.Route(node, up[each])) ==
            Strings{absl::StrCat("node", node, "/nic0/torus-", axis, "-up")});
      CHECK(LinkNames(cluster, cluster.Route(up[each], node)) ==
            Strings{
                absl::StrCat("node", up[each], "/nic0/torus-", axis, "-down")});
    }
  }
}

TEST_CASE("torus: each NIC has a torus of its own", "[topology]") {
  ShapeParams params = Torus(4, "4", 4);
  params.nics_per_node = 2;
  const Cluster cluster = BuildCluster(params).value();
  // Device 3 of node 0, which has the second NIC, to the first of node 1.
  CHECK(LinkNames(cluster, cluster.Route(3, 4)) ==
        Strings{"node0/nic1/torus-x-up"});
  CHECK(LinkNames(cluster, cluster.Route(4, 3)) ==
        Strings{"node1/nic0/torus-x-down"});
  CHECK(LinkNames(cluster, cluster.Route(0, 3)) ==
        Strings{"node0/gpu0/nvlink-up", "node0/gpu3/nvlink-down"});
}

TEST_CASE("torus: two in a row have one cable", "[topology]") {
  const Cluster cluster = BuildCluster(Torus(2, "2")).value();
  CHECK(LinkNames(cluster, cluster.Route(0, 1)) ==
        Strings{"node0/nic0/torus-x-up"});
  CHECK(LinkNames(cluster, cluster.Route(1, 0)) ==
        Strings{"node1/nic0/torus-x-up"});
}

TEST_CASE("torus: sides are as equal as they can be", "[topology]") {
  const auto sides = [](int nodes, const char* text) {
    const Cluster by_itself = BuildCluster(Torus(nodes, "auto")).value();
    const Cluster given = BuildCluster(Torus(nodes, text)).value();
    int differ = 0;
    for (int to = 0; to < nodes; ++to) {
      differ += LinkNames(by_itself, by_itself.Route(0, to)) !=
                LinkNames(given, given.Route(0, to));
    }
    INFO(nodes << " " << text);
    CHECK(differ == 0);
  };
  sides(64, "4x4x4");
  sides(32, "4x4x2");
  sides(24, "4x3x2");
  sides(7, "7");
  sides(1, "1");
}

TEST_CASE("torus: sides have to multiply to the nodes", "[topology]") {
  const absl::Status status = BuildCluster(Torus(32, "4x4x4")).status();
  CHECK(status.message() ==
        "params.sides: 4x4x4 is not allowed; allowed: sides that multiply to "
        "the 32 nodes, such as 4x4x2, or auto (these have 64)");
  CHECK(PartsOf(status).field == "params.sides");
  CHECK(absl::StrContains(BuildCluster(Torus(8, "8x0")).status().message(),
                          "params.sides: 8x0"));
}

TEST_CASE("torus: thousands of chips", "[topology]") {
  const Cluster cluster = BuildCluster(Torus(8960, "16x20x28")).value();
  CHECK(cluster.links().size() == 8960 * (6 + 2));
  // Half way round in every dimension.
  CHECK(cluster.Route(0, 8 + 16 * (10 + 20 * 14)).size() == 8 + 10 + 14);
}

}  // namespace
}  // namespace pipewright::torus_test
