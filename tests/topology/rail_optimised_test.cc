#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/topology/registry.h"
#include "tests/support/shapes.h"

namespace pipewright::rail_optimised_test {
namespace {

using testing::LinkNames;
using testing::SampleParams;
using Strings = std::vector<std::string>;

ShapeParams Rails(int nodes, int devices, const char* cross_rail) {
  ShapeParams params = SampleParams("rail-optimised", nodes, devices);
  params.own = {{"nodes_per_unit", "2"}, {"cross_rail", cross_rail}};
  return params;
}

TEST_CASE("rail-optimised: one rail of a unit is one switch", "[topology]") {
  for (const char* way : {"nvlink", "spine"}) {
    const Cluster cluster = BuildCluster(Rails(4, 4, way)).value();
    CHECK(LinkNames(cluster, cluster.Route(1, 5)) ==
          Strings{"node0/nic1/up", "node1/nic1/down"});
    CHECK(LinkNames(cluster, cluster.Route(1, 9)) ==
          Strings{"node0/nic1/up", "unit0/rail1/up", "unit1/rail1/down",
                  "node2/nic1/down"});
  }
}

TEST_CASE("rail-optimised: to another rail over NVLink or the spines",
          "[topology]") {
  const Cluster over_nvlink = BuildCluster(Rails(4, 4, "nvlink")).value();
  const std::vector<LinkId> near = over_nvlink.Route(1, 6);
  CHECK(LinkNames(over_nvlink, near) ==
        Strings{"node0/gpu1/nvlink-up", "node0/gpu2/nvlink-down",
                "node0/nic2/up", "node1/nic2/down"});
  CHECK(over_nvlink.LatencyOf(near) == Approx(2 * 1e-6 + 2 * 2e-6));
  const Cluster over_spines = BuildCluster(Rails(4, 4, "spine")).value();
  CHECK(LinkNames(over_spines, over_spines.Route(1, 6)) ==
        Strings{"node0/nic1/up", "unit0/rail1/up", "unit0/rail2/down",
                "node1/nic2/down"});
}

TEST_CASE("rail-optimised: devices of one NIC are on one rail", "[topology]") {
  ShapeParams params = Rails(2, 4, "nvlink");
  params.nics_per_node = 2;
  const Cluster cluster = BuildCluster(params).value();
  CHECK(LinkNames(cluster, cluster.Route(0, 5)) ==
        Strings{"node0/nic0/up", "node1/nic0/down"});
  CHECK(LinkNames(cluster, cluster.Route(0, 7)) ==
        Strings{"node0/gpu0/nvlink-up", "node0/gpu3/nvlink-down",
                "node0/nic1/up", "node1/nic1/down"});
  // One unit needs no spines then.
  for (const Link& link : cluster.links()) {
    CHECK(link.name.find("rail") == std::string::npos);
  }
}

TEST_CASE("rail-optimised: a leaf's uplinks have what its NICs have",
          "[topology]") {
  ShapeParams params = Rails(4, 4, "nvlink");
  const auto trunk = [&] {
    const Cluster cluster = BuildCluster(params).value();
    return cluster.links()[cluster.Route(1, 9)[1]].bytes_per_s;
  };
  CHECK(trunk() == 2 * 25e9);
  params.own["oversubscription"] = "4";
  CHECK(trunk() == 2 * 25e9 / 4);
}

}  // namespace
}  // namespace pipewright::rail_optimised_test
