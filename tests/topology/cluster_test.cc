#include "sim/topology/cluster.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/topology/registry.h"

namespace pipewright {
namespace {

ShapeParams Params(const std::string& shape, int nodes, int devices) {
  ShapeParams params;
  params.name = "test";
  params.shape = shape;
  params.nodes = nodes;
  params.devices_per_node = devices;
  params.nodes_per_leaf = shape == "fat-tree" ? 2 : 0;
  params.nvlink = {300e9, 1e-6, ""};
  params.nic = {25e9, 2e-6, ""};
  params.pcie = {32e9, 3e-6, ""};
  return params;
}

std::vector<std::string> Names(const Cluster& cluster,
                               const std::vector<LinkId>& links) {
  std::vector<std::string> names;
  for (const LinkId link : links) names.push_back(cluster.links()[link].name);
  return names;
}

using Strings = std::vector<std::string>;

TEST_CASE("topology: node routes over its switch", "[topology]") {
  const Cluster cluster = BuildCluster(Params("node", 1, 8)).value();
  CHECK(cluster.name() == "test");
  CHECK(cluster.num_devices() == 8);
  CHECK(cluster.links().size() == 8 * 2 + 8 * 2);
  CHECK(cluster.devices()[2].name == "node0/gpu2");
  CHECK(cluster.Route(3, 3).empty());
  const std::vector<LinkId> there = cluster.Route(2, 5);
  CHECK(Names(cluster, there) ==
        Strings{"node0/gpu2/nvlink-up", "node0/gpu5/nvlink-down"});
  CHECK(cluster.LatencyOf(there) == Approx(2e-6));
  CHECK(cluster.BandwidthOf(there) == 300e9);
  // Full duplex: the way back shares nothing.
  CHECK(Names(cluster, cluster.Route(5, 2)) ==
        Strings{"node0/gpu5/nvlink-up", "node0/gpu2/nvlink-down"});
  CHECK(cluster.LatencyOf({}) == 0);
  CHECK(std::isinf(cluster.BandwidthOf({})));
}

TEST_CASE("topology: nic-switch routes between nodes", "[topology]") {
  ShapeParams params = Params("nic-switch", 4, 8);
  params.nics_per_node = 2;
  const Cluster cluster = BuildCluster(params).value();
  CHECK(cluster.num_devices() == 32);
  CHECK(cluster.devices()[31].node == 3);
  CHECK(Names(cluster, cluster.Route(8, 15)) ==
        Strings{"node1/gpu0/nvlink-up", "node1/gpu7/nvlink-down"});
  const std::vector<LinkId> between = cluster.Route(3, 28);
  CHECK(Names(cluster, between) == Strings{"node0/nic0/up", "node3/nic1/down"});
  CHECK(cluster.LatencyOf(between) == Approx(4e-6));
  CHECK(cluster.BandwidthOf(between) == 25e9);
  // Devices share NICs in blocks of four.
  CHECK(cluster.Route(0, 8)[0] == cluster.Route(3, 8)[0]);
  CHECK(cluster.Route(0, 8)[0] != cluster.Route(4, 8)[0]);
  // By default a device has its own.
  params.nics_per_node = 0;
  const Cluster own = BuildCluster(params).value();
  CHECK(Names(own, own.Route(3, 28)) ==
        Strings{"node0/nic3/up", "node3/nic4/down"});
}

TEST_CASE("topology: fat-tree goes up as far as it must", "[topology]") {
  ShapeParams params = Params("fat-tree", 5, 2);
  params.oversubscription = 4;
  const Cluster cluster = BuildCluster(params).value();
  CHECK(Names(cluster, cluster.Route(0, 3)) ==
        Strings{"node0/nic0/up", "node1/nic1/down"});
  const std::vector<LinkId> across = cluster.Route(0, 9);
  CHECK(Names(cluster, across) ==
        Strings{"node0/nic0/up", "leaf0/up", "leaf2/down", "node4/nic1/down"});
  // 2 nodes x 2 NICs x 25 GB/s / 4.
  CHECK(cluster.links()[across[1]].bytes_per_s == Approx(25e9));
  CHECK(cluster.LatencyOf(across) == Approx(8e-6));
  params.oversubscription = 8;
  const Cluster slower = BuildCluster(params).value();
  CHECK(slower.BandwidthOf(slower.Route(0, 9)) == Approx(12.5e9));
  CHECK(slower.BandwidthOf(slower.Route(0, 3)) == Approx(25e9));
}

TEST_CASE("topology: one leaf is a nic-switch", "[topology]") {
  ShapeParams params = Params("fat-tree", 2, 4);
  const Cluster tree = BuildCluster(params).value();
  const Cluster flat = BuildCluster(Params("nic-switch", 2, 4)).value();
  CHECK(tree.links().size() == flat.links().size());
  for (int from = 0; from < 8; ++from) {
    for (int to = 0; to < 8; ++to) {
      CHECK(Names(tree, tree.Route(from, to)) ==
            Names(flat, flat.Route(from, to)));
    }
  }
}

TEST_CASE("topology: devices share host links by PCIe switch", "[topology]") {
  ShapeParams params = Params("nic-switch", 2, 8);
  params.pcie_per_switch = 2;
  const Cluster cluster = BuildCluster(params).value();
  CHECK(Names(cluster, cluster.DeviceToHost(3)) ==
        Strings{"node0/pcie1/to-host"});
  CHECK(Names(cluster, cluster.HostToDevice(15)) ==
        Strings{"node1/pcie3/to-device"});
  CHECK(cluster.DeviceToHost(2) == cluster.DeviceToHost(3));
  CHECK(cluster.DeviceToHost(3) != cluster.DeviceToHost(4));
  CHECK(cluster.LatencyOf(cluster.DeviceToHost(0)) == 3e-6);
}

TEST_CASE("topology: every route of every shape is sound", "[topology]") {
  REQUIRE(AllShapes().size() >= 3);
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    ShapeParams params = Params(shape->name, shape->name == "node" ? 1 : 5, 4);
    params.nics_per_node = 2;
    params.pcie_per_switch = 2;
    const Cluster cluster = BuildCluster(params).value();
    std::set<std::string> names;
    for (const Link& link : cluster.links()) {
      CHECK(link.bytes_per_s > 0);
      names.insert(link.name);
    }
    CHECK(names.size() == cluster.links().size());
    std::set<LinkId> used;
    for (int from = 0; from < cluster.num_devices(); ++from) {
      for (const LinkId link : cluster.DeviceToHost(from)) used.insert(link);
      for (const LinkId link : cluster.HostToDevice(from)) used.insert(link);
      for (int to = 0; to < cluster.num_devices(); ++to) {
        const std::vector<LinkId> route = cluster.Route(from, to);
        CHECK(route.empty() == (from == to));
        CHECK(std::set<LinkId>(route.begin(), route.end()).size() ==
              route.size());
        used.insert(route.begin(), route.end());
      }
    }
    // All ids exist, and no link is there for nothing.
    CHECK(used.size() == cluster.links().size());
    CHECK(*used.rbegin() == static_cast<LinkId>(cluster.links().size()) - 1);
  }
}

TEST_CASE("topology: a device alone needs host links only", "[topology]") {
  ShapeParams params = Params("node", 1, 1);
  params.nvlink = {};
  params.nic = {};
  const Cluster cluster = BuildCluster(params).value();
  CHECK(cluster.links().size() == 2);
}

TEST_CASE("topology: large clusters", "[topology]") {
  const Cluster flat = BuildCluster(Params("nic-switch", 1024, 8)).value();
  CHECK(flat.num_devices() == 8192);
  CHECK(flat.links().size() == 1024 * (16 + 16 + 16));
  CHECK(Names(flat, flat.Route(8191, 0)) ==
        Strings{"node1023/nic7/up", "node0/nic0/down"});
  ShapeParams params = Params("fat-tree", 8192, 8);
  params.nodes_per_leaf = 32;
  const Cluster tree = BuildCluster(params).value();
  CHECK(tree.num_devices() == 65536);
  CHECK(Names(tree, tree.Route(0, 65535)) == Strings{"node0/nic0/up",
                                                     "leaf0/up", "leaf255/down",
                                                     "node8191/nic7/down"});
}

// BuildCluster fails and names `field`.
void CheckFails(const ShapeParams& params, const std::string& field) {
  const absl::StatusOr<Cluster> cluster = BuildCluster(params);
  REQUIRE(cluster.status().code() == absl::StatusCode::kInvalidArgument);
  INFO(cluster.status());
  CHECK(absl::StrContains(cluster.status().message(), field));
}

TEST_CASE("topology: bad parameters are refused", "[topology]") {
  const ShapeParams good = Params("nic-switch", 2, 8);
  REQUIRE(BuildCluster(good).ok());
  const auto fails = [&](void (*change)(ShapeParams&),
                         const std::string& field) {
    ShapeParams params = good;
    change(params);
    CheckFails(params, field);
  };
  fails([](ShapeParams& p) { p.shape = "nic-swich"; },
        "did you mean 'nic-switch'?");
  fails([](ShapeParams& p) { p.shape = "node"; }, "nodes: 2");
  fails([](ShapeParams& p) { p.shape = "fat-tree"; }, "nodes_per_leaf: 0");
  fails([](ShapeParams& p) { p.nodes = 0; }, "nodes: 0");
  fails([](ShapeParams& p) { p.devices_per_node = -1; },
        "devices_per_node: -1");
  fails([](ShapeParams& p) { p.nodes = 1 << 30; },
        "nodes * devices_per_node: 8589934592");
  fails([](ShapeParams& p) { p.nics_per_node = 3; }, "nics_per_node: 3");
  fails([](ShapeParams& p) { p.nics_per_node = 16; }, "nics_per_node: 16");
  fails([](ShapeParams& p) { p.nics_per_node = -1; }, "nics_per_node: -1");
  fails([](ShapeParams& p) { p.pcie_per_switch = 0; }, "pcie_per_switch: 0");
  fails([](ShapeParams& p) { p.nodes_per_leaf = -1; }, "nodes_per_leaf: -1");
  fails([](ShapeParams& p) { p.oversubscription = 0.5; },
        "oversubscription: 0.5");
  fails([](ShapeParams& p) { p.oversubscription = std::nan(""); },
        "oversubscription");
  fails([](ShapeParams& p) { p.nvlink.bytes_per_s = 0; }, "nvlink.bandwidth");
  fails([](ShapeParams& p) { p.nic.bytes_per_s = -1; }, "nic.bandwidth");
  fails(
      [](ShapeParams& p) {
        p.pcie.bytes_per_s = std::numeric_limits<double>::infinity();
      },
      "pcie.bandwidth");
  fails([](ShapeParams& p) { p.nic.latency_s = -1e-6; }, "nic.latency");
  fails([](ShapeParams& p) { p.nvlink.latency_s = std::nan(""); },
        "nvlink.latency");
}

}  // namespace
}  // namespace pipewright
