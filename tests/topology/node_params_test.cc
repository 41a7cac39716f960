// PCIe roots and NUMA nodes: which links copies cross, on every shape.
#include "sim/topology/node_params.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/topology/system.h"
#include "tests/support/shapes.h"

namespace pipewright::node_params_test {
namespace {

using testing::LinkNames;
using testing::SampleParams;
using Strings = std::vector<std::string>;

// A node of 8 devices, 4 PCIe switches, 2 roots, 2 NUMA nodes.
ShapeParams Host(const std::string& shape) {
  const ShapeInfo& info = *FindShape(shape);
  ShapeParams params = SampleParams(shape, info.example_nodes, 8);
  params.own = info.example;
  params.pcie_per_switch = 2;
  params.own["pcie_roots"] = "2";
  params.own["root_bandwidth"] = "40GBps";
  params.own["root_latency"] = "1us";
  params.own["numa_nodes"] = "2";
  params.own["numa_bandwidth"] = "20GBps";
  params.own["numa_latency"] = "2us";
  return params;
}

TEST_CASE("node params: copies cross switch, root and NUMA link",
          "[topology]") {
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    ShapeParams params = Host(shape->name);
    const Cluster local = BuildCluster(params).value();
    CHECK(LinkNames(local, local.DeviceToHost(3)) ==
          Strings{"node0/pcie1/to-host", "node0/root0/to-host"});
    CHECK(LinkNames(local, local.HostToDevice(4)) ==
          Strings{"node0/root1/to-device", "node0/pcie2/to-device"});
    CHECK(local.BandwidthOf(local.DeviceToHost(7)) == Approx(32e9));
    CHECK(local.LatencyOf(local.DeviceToHost(7)) == Approx(3e-6 + 1e-6));

    params.own["host_numa"] = "first";
    const Cluster first = BuildCluster(params).value();
    CHECK(LinkNames(first, first.DeviceToHost(3)) ==
          Strings{"node0/pcie1/to-host", "node0/root0/to-host"});
    CHECK(LinkNames(first, first.DeviceToHost(4)) ==
          Strings{"node0/pcie2/to-host", "node0/root1/to-host",
                  "node0/numa1/to-host"});
    CHECK(LinkNames(first, first.HostToDevice(7)) ==
          Strings{"node0/numa1/to-device", "node0/root1/to-device",
                  "node0/pcie3/to-device"});
    CHECK(first.BandwidthOf(first.DeviceToHost(7)) == Approx(20e9));
    CHECK(first.LatencyOf(first.HostToDevice(7)) == Approx(6e-6));
    // All eight at once: two switches a root, two roots a memory.
    std::vector<std::vector<LinkId>> copies;
    for (int device = 0; device < 8; ++device) {
      copies.push_back(first.DeviceToHost(device));
    }
    CHECK(first.RateOf(first.Bundle(copies).loads) == Approx(20e9 / 4));
    copies.resize(4);
    CHECK(first.RateOf(first.Bundle(copies).loads) == Approx(40e9 / 4));

    // No link is there for nothing, messages know none of them.
    std::set<LinkId> used;
    const int count = first.num_devices();
    for (int from = 0; from < count; ++from) {
      for (const LinkId link : first.DeviceToHost(from)) used.insert(link);
      for (const LinkId link : first.HostToDevice(from)) used.insert(link);
      for (int to = 0; to < count; ++to) {
        for (const LinkId link : first.Route(from, to)) used.insert(link);
      }
    }
    CHECK(used.size() == first.links().size());
  }
}

TEST_CASE("node params: without them nothing changes", "[topology]") {
  for (const ShapeInfo* shape : AllShapes()) {
    ShapeParams params = Host(shape->name);
    const ShapeParamValues own = shape->example;
    params.own = own;
    const Cluster bare = BuildCluster(params).value();
    CHECK(LinkNames(bare, bare.DeviceToHost(3)) ==
          Strings{"node0/pcie1/to-host"});
    // NUMA nodes by themselves cost nothing, nor do roots without a bandwidth.
    params.own["pcie_roots"] = "4";
    params.own["numa_nodes"] = "2";
    const Cluster said = BuildCluster(params).value();
    CHECK(said.links().size() == bare.links().size());
  }
}

TEST_CASE("node params: what both directions of a switch share", "[topology]") {
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    ShapeParams params = Host(shape->name);
    params.own["pcie_alone_factor"] = "1.25";
    params.own["root_bandwidth"] = "100GBps";
    params.host.bytes_per_s = 50e9;
    const Cluster cluster = BuildCluster(params).value();
    CHECK(LinkNames(cluster, cluster.DeviceToHost(3)) ==
          Strings{"node0/pcie1/to-host", "node0/pcie1/both-ways",
                  "node0/root0/to-host", "node0/numa0/host-memory"});
    CHECK(LinkNames(cluster, cluster.HostToDevice(3)) ==
          Strings{"node0/numa0/host-memory", "node0/root0/to-device",
                  "node0/pcie1/both-ways", "node0/pcie1/to-device"});
    const double pcie = params.pcie.bytes_per_s;
    CHECK(cluster.BandwidthOf(cluster.DeviceToHost(3)) == Approx(1.25 * pcie));
    CHECK(cluster.BandwidthOf(cluster.HostToDevice(3)) == Approx(pcie));
    const std::vector<LinkLoad> both =
        cluster.Bundle({cluster.DeviceToHost(3), cluster.HostToDevice(2)}, {})
            .loads;
    CHECK(cluster.RateOf(both) == Approx(pcie));
  }
}

TEST_CASE("node params: the memory of a host is that of all its devices",
          "[topology]") {
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    ShapeParams params = Host(shape->name);
    const Cluster bare = BuildCluster(params).value();
    params.host.bytes_per_s = 50e9;
    const Cluster local = BuildCluster(params).value();
    CHECK(LinkNames(local, local.HostMemory(3)) ==
          Strings{"node0/numa0/host-memory", "node0/gpu3/host-share"});
    const int last = local.num_devices() - 4;
    const std::string node = absl::StrCat("node", params.nodes - 1);
    CHECK(LinkNames(local, local.HostMemory(last)) ==
          Strings{node + "/numa1/host-memory", node + "/gpu4/host-share"});
    CHECK(LinkNames(local, local.DeviceToHost(last)).back() ==
          node + "/numa1/host-memory");
    CHECK(LinkNames(local, local.HostToDevice(last)).front() ==
          node + "/numa1/host-memory");
    const auto bandwidth = [](const Cluster& cluster, LinkId link) {
      return cluster.links()[link].bytes_per_s;
    };
    // Four devices each; the cores of one have no more than its share.
    CHECK(bandwidth(local, local.HostMemory(3)[0]) == Approx(200e9));
    CHECK(bandwidth(local, local.HostMemory(3)[1]) == Approx(50e9));
    // What is there without them has the same number.
    for (size_t link = 0; link < bare.links().size(); ++link) {
      CHECK(bare.links()[link].name == local.links()[link].name);
    }

    // All data on the first NUMA node: half of the memory for all eight.
    params.own["host_numa"] = "first";
    const Cluster first = BuildCluster(params).value();
    CHECK(LinkNames(first, first.HostMemory(7)) ==
          Strings{"node0/numa0/host-memory", "node0/gpu7/host-share"});
    CHECK(bandwidth(first, first.HostMemory(7)[0]) == Approx(200e9));

    params.own["host_numa"] = "local";
    params.own["numa_nodes"] = "1";
    const Cluster whole = BuildCluster(params).value();
    CHECK(LinkNames(whole, whole.HostMemory(7))[0] == "node0/host-memory");
    CHECK(bandwidth(whole, whole.HostMemory(7)[0]) == Approx(400e9));

    // No link is there for nothing.
    for (const Cluster& cluster : {local, first, whole}) {
      std::set<LinkId> used;
      const int count = cluster.num_devices();
      for (int from = 0; from < count; ++from) {
        for (const LinkId link : cluster.DeviceToHost(from)) used.insert(link);
        for (const LinkId link : cluster.HostToDevice(from)) used.insert(link);
        for (const LinkId link : cluster.HostMemory(from)) used.insert(link);
        for (int to = 0; to < count; ++to) {
          for (const LinkId link : cluster.Route(from, to)) used.insert(link);
        }
      }
      CHECK(used.size() == cluster.links().size());
    }
  }
}

// A node of one device has its memory to itself.
TEST_CASE("node params: the memory of a single device has no shares",
          "[topology]") {
  ShapeParams params = *FindSystem("gh200");
  params.nodes = 2;
  const Cluster cluster = BuildCluster(params).value();
  CHECK(LinkNames(cluster, cluster.HostMemory(1)) ==
        Strings{"node1/host-memory"});
  CHECK(cluster.BandwidthOf(cluster.HostMemory(1)) == 448e9);
}

TEST_CASE("node params: halved by twice the bandwidth", "[topology]") {
  ShapeParams params = Host("nic-switch");
  params.own["host_numa"] = "first";
  const Cluster one = BuildCluster(params).value();
  const Cluster two = BuildCluster(testing::TimesAsFast(params, 2)).value();
  const std::vector<LinkId> route = one.DeviceToHost(7);
  CHECK(two.BandwidthOf(route) == Approx(2 * one.BandwidthOf(route)));
  CHECK(two.LatencyOf(route) == Approx(one.LatencyOf(route) / 2));
}

TEST_CASE("node params: bad values are refused by name", "[topology]") {
  const auto refused = [](const std::string& key, const std::string& value,
                          const std::string& message) {
    ShapeParams params = Host("nic-switch");
    params.own[key] = value;
    const absl::Status status = BuildCluster(params).status();
    CHECK(status.message() == message);
    CHECK(PartsOf(status).field == absl::StrCat("params.", key));
  };
  refused("pcie_roots", "3",
          "params.pcie_roots: 3 is not allowed; allowed: 1 to 4, a divisor of "
          "the PCIe switches of a node (4)");
  refused("numa_nodes", "4",
          "params.numa_nodes: 4 is not allowed; allowed: 1 to 2, a divisor of "
          "params.pcie_roots (2)");
  refused("root_bandwidth", "40",
          "params.root_bandwidth: 40 is not allowed; allowed: a bandwidth with "
          "its unit, such as 50GBps");
  for (const ShapeParam& param : NodeParams()) {
    for (const std::string& value : testing::IllegalValuesOf(param)) {
      INFO(param.key << " '" << value << "'");
      ShapeParams params = Host("nic-switch");
      params.own[param.key] = value;
      CHECK(PartsOf(BuildCluster(params).status()).field ==
            absl::StrCat("params.", param.key));
    }
  }
  ShapeParams params = Host("nic-switch");
  params.own["host_numa"] = "first";
  params.own.erase("numa_bandwidth");
  CHECK(BuildCluster(params).status().message() ==
        "params.numa_bandwidth: missing; allowed: a bandwidth above 0, since "
        "params.host_numa is first");
}

TEST_CASE("node params: the RoCE node has two sockets", "[topology]") {
  ShapeParams params = FindSystem("a100-roce").value();
  const Cluster local = BuildCluster(params).value();
  CHECK(LinkNames(local, local.DeviceToHost(7)) ==
        Strings{"node0/pcie3/to-host", "node0/numa1/host-memory"});
  params.own["host_numa"] = "first";
  const Cluster first = BuildCluster(params).value();
  CHECK(LinkNames(first, first.DeviceToHost(3)) ==
        Strings{"node0/pcie1/to-host", "node0/numa0/host-memory"});
  CHECK(LinkNames(first, first.DeviceToHost(4)) ==
        Strings{"node0/pcie2/to-host", "node0/numa1/to-host",
                "node0/numa0/host-memory"});
}

}  // namespace
}  // namespace pipewright::node_params_test
