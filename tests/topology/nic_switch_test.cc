#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/topology/registry.h"
#include "tests/support/shapes.h"

namespace pipewright::nic_switch_test {
namespace {

using testing::LinkNames;
using testing::SampleParams;
using Strings = std::vector<std::string>;

TEST_CASE("nic-switch: routes between nodes", "[topology]") {
  ShapeParams params = SampleParams("nic-switch", 4, 8);
  params.nics_per_node = 2;
  const Cluster cluster = BuildCluster(params).value();
  CHECK(cluster.num_devices() == 32);
  CHECK(cluster.devices()[31].node == 3);
  CHECK(LinkNames(cluster, cluster.Route(8, 15)) ==
        Strings{"node1/gpu0/nvlink-up", "node1/gpu7/nvlink-down"});
  const std::vector<LinkId> between = cluster.Route(3, 28);
  CHECK(LinkNames(cluster, between) ==
        Strings{"node0/nic0/up", "node3/nic1/down"});
  CHECK(cluster.LatencyOf(between) == Approx(4e-6));
  CHECK(cluster.BandwidthOf(between) == 25e9);
  // Devices share NICs in blocks of four.
  CHECK(cluster.Route(0, 8)[0] == cluster.Route(3, 8)[0]);
  CHECK(cluster.Route(0, 8)[0] != cluster.Route(4, 8)[0]);
  // By default a device has its own.
  params.nics_per_node = 0;
  const Cluster own = BuildCluster(params).value();
  CHECK(LinkNames(own, own.Route(3, 28)) ==
        Strings{"node0/nic3/up", "node3/nic4/down"});
}

TEST_CASE("nic-switch: host links are named by PCIe switch", "[topology]") {
  ShapeParams params = SampleParams("nic-switch", 2, 8);
  params.pcie_per_switch = 2;
  const Cluster cluster = BuildCluster(params).value();
  CHECK(LinkNames(cluster, cluster.DeviceToHost(3)) ==
        Strings{"node0/pcie1/to-host"});
  CHECK(LinkNames(cluster, cluster.HostToDevice(15)) ==
        Strings{"node1/pcie3/to-device"});
}

TEST_CASE("nic-switch: a large cluster", "[topology]") {
  const Cluster cluster =
      BuildCluster(SampleParams("nic-switch", 1024, 8)).value();
  CHECK(cluster.num_devices() == 8192);
  CHECK(cluster.links().size() == 1024 * (16 + 16 + 16));
  CHECK(LinkNames(cluster, cluster.Route(8191, 0)) ==
        Strings{"node1023/nic7/up", "node0/nic0/down"});
}

}  // namespace
}  // namespace pipewright::nic_switch_test
