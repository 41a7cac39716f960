#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/topology/registry.h"
#include "tests/support/shapes.h"

namespace pipewright::node_test {
namespace {

using testing::LinkNames;
using testing::SampleParams;
using Strings = std::vector<std::string>;

TEST_CASE("node: routes go over its switch", "[topology]") {
  const Cluster cluster = BuildCluster(SampleParams("node", 1, 8)).value();
  CHECK(cluster.name() == "test");
  CHECK(cluster.num_devices() == 8);
  CHECK(cluster.links().size() == 8 * 2 + 8 * 2);
  CHECK(cluster.devices()[2].name == "node0/gpu2");
  CHECK(cluster.Route(3, 3).empty());
  const std::vector<LinkId> there = cluster.Route(2, 5);
  CHECK(LinkNames(cluster, there) ==
        Strings{"node0/gpu2/nvlink-up", "node0/gpu5/nvlink-down"});
  CHECK(cluster.LatencyOf(there) == Approx(2e-6));
  CHECK(cluster.BandwidthOf(there) == 300e9);
  // Full duplex: the way back shares nothing.
  CHECK(LinkNames(cluster, cluster.Route(5, 2)) ==
        Strings{"node0/gpu5/nvlink-up", "node0/gpu2/nvlink-down"});
  CHECK(cluster.LatencyOf({}) == 0);
  CHECK(std::isinf(cluster.BandwidthOf({})));
}

TEST_CASE("node: a device alone needs host links only", "[topology]") {
  ShapeParams params = SampleParams("node", 1, 1);
  params.nvlink = {};
  params.nic = {};
  const Cluster cluster = BuildCluster(params).value();
  CHECK(cluster.links().size() == 2);
}

TEST_CASE("node: there is one of it", "[topology]") {
  const absl::Status status = BuildCluster(SampleParams("node", 2, 8)).status();
  CHECK(absl::StrContains(status.message(), "nodes: 2"));
}

}  // namespace
}  // namespace pipewright::node_test
