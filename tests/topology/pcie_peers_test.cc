// Nodes without NVLink: which links messages between their devices cross, and
// what hops and exchanges take on them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/cost/collective_time.h"
#include "sim/run/simulated_run.h"
#include "sim/topology/system.h"
#include "tests/support/prepare.h"
#include "tests/support/shapes.h"

namespace pipewright::pcie_peers_test {
namespace {

using testing::LinkNames;
using testing::Prepared;
using testing::SampleParams;
using Strings = std::vector<std::string>;

// Eight devices behind two PCIe switches, each on a socket of its own.
ShapeParams Box(const std::string& peers, const std::string& shape = "node") {
  ShapeParams params = SampleParams(shape, 1, 8);
  params.nvlink = {};
  params.pcie_per_switch = 4;
  params.own["pcie_roots"] = "2";
  params.own["numa_nodes"] = "2";
  params.own["pcie_peers"] = peers;
  return params;
}

Strings Route(const ShapeParams& params, int from, int to) {
  const Cluster cluster = BuildCluster(params).value();
  return LinkNames(cluster, cluster.Route(from, to));
}

TEST_CASE(
    "pcie peers: messages cross the host where devices cannot reach "
    "each other",
    "[topology]") {
  CHECK(Route(Box("none"), 0, 1) ==
        Strings{"node0/pcie0/to-host", "node0/pcie0/to-device"});
  CHECK(Route(Box("none"), 1, 6) ==
        Strings{"node0/pcie0/to-host", "node0/pcie1/to-device"});
  CHECK(Route(Box("switch"), 0, 1) ==
        Strings{"node0/gpu0/pcie-up", "node0/gpu1/pcie-down"});
  CHECK(Route(Box("switch"), 1, 6) ==
        Strings{"node0/gpu1/pcie-up", "node0/pcie0/to-host",
                "node0/pcie1/to-device", "node0/gpu6/pcie-down"});
  // Without memory in between if they can.
  ShapeParams params = Box("node");
  params.host.bytes_per_s = 10e9;
  CHECK(Route(params, 1, 6) == Route(Box("switch"), 1, 6));
  params.own["pcie_peers"] = "switch";
  CHECK(Route(params, 1, 6) ==
        Strings{"node0/gpu1/pcie-up", "node0/pcie0/to-host",
                "node0/numa0/host-memory", "node0/pcie1/to-device",
                "node0/gpu6/pcie-down"});
  CHECK(Route(params, 0, 1) == Route(Box("switch"), 0, 1));
  // Peers of one socket do not go where copies lie.
  params = Box("node");
  params.own["host_numa"] = "first";
  params.own["numa_bandwidth"] = "20GBps";
  params.pcie_per_switch = 2;
  params.own["pcie_roots"] = "2";
  CHECK(Route(params, 4, 6) ==
        Strings{"node0/gpu4/pcie-up", "node0/pcie2/to-host",
                "node0/pcie3/to-device", "node0/gpu6/pcie-down"});
  // Alone behind a switch, its link is the device's own.
  params = Box("node");
  params.pcie_per_switch = 1;
  CHECK(Route(params, 0, 1) ==
        Strings{"node0/pcie0/to-host", "node0/pcie1/to-device"});
}

TEST_CASE("pcie peers: roots, sockets, and both ways through a switch",
          "[topology]") {
  ShapeParams params = Box("none");
  params.own["root_bandwidth"] = "40GBps";
  params.own["numa_bandwidth"] = "20GBps";
  CHECK(Route(params, 0, 5) ==
        Strings{"node0/pcie0/to-host", "node0/root0/to-host",
                "node0/numa1/to-device", "node0/root1/to-device",
                "node0/pcie1/to-device"});
  CHECK(Route(params, 5, 0) ==
        Strings{"node0/pcie1/to-host", "node0/root1/to-host",
                "node0/numa1/to-host", "node0/root0/to-device",
                "node0/pcie0/to-device"});
  params.own["pcie_alone_factor"] = "1.5";
  const Strings shared = Route(params, 0, 1);
  CHECK(shared == Strings{"node0/pcie0/to-host", "node0/pcie0/both-ways",
                          "node0/root0/to-host", "node0/root0/to-device",
                          "node0/pcie0/to-device"});
  // With NVLink nothing of it counts.
  params.nvlink = {300e9, 1e-6, ""};
  CHECK(Route(params, 0, 1) ==
        Strings{"node0/gpu0/nvlink-up", "node0/gpu1/nvlink-down"});
}

TEST_CASE("pcie peers: every shape, every value, each link once",
          "[topology]") {
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    for (const char* peers : {"none", "switch", "node"}) {
      ShapeParams params = SampleParams(shape->name, shape->example_nodes, 8);
      params.own = shape->example;
      params.nvlink = {};
      params.pcie_per_switch = 2;
      params.own["pcie_alone_factor"] = "1.4";
      params.own["pcie_peers"] = peers;
      const Cluster cluster = BuildCluster(params).value();
      std::vector<bool> crossed(cluster.links().size(), false);
      bool each_once = true;
      bool over_nvlink = false;
      for (int from = 0; from < cluster.num_devices(); ++from) {
        for (int to = 0; to < cluster.num_devices(); ++to) {
          if (from == to) continue;
          std::vector<LinkId> route = cluster.Route(from, to);
          for (const LinkId link : route) {
            over_nvlink |= cluster.links()[link].kind == LinkKind::kNvlink;
            crossed[link] = true;
          }
          std::sort(route.begin(), route.end());
          each_once &=
              !route.empty() &&
              std::adjacent_find(route.begin(), route.end()) == route.end();
        }
        // Copies share the links of messages.
        for (const LinkId link : cluster.DeviceToHost(from)) {
          CHECK(crossed[link]);
        }
      }
      CHECK(each_once);
      CHECK_FALSE(over_nvlink);
    }
  }
}

TEST_CASE("pcie peers: without NVLink a node needs PCIe", "[topology]") {
  ShapeParams params = SampleParams("node", 1, 2);
  params.nvlink = params.pcie = {};
  CHECK(BuildCluster(params).status().message() ==
        "nvlink.bandwidth: missing or 0; allowed: finite and above 0");
  const absl::StatusOr<ShapeParams> read = ParseSystem(
      "name: \"box\" shape: \"node\" device_name: \"L40S 48GB\"\n"
      "memory { value: \"48GB\" source: \"data sheet\" }\n"
      "devices_per_node { value: 4 source: \"own\" }\n"
      "nics_per_node { value: 1 source: \"own\" }\n"
      "pcie_per_switch { value: 4 source: \"own\" }\n"
      "nic { bandwidth { value: \"100Gbps\" source: \"own\" } latency { value: "
      "\"2us\" source: \"own\" } }\n"
      "pcie { bandwidth { value: \"25GBps\" source: \"own\" } latency { value: "
      "\"2us\" source: \"own\" } }\n",
      "box.txtpb");
  INFO(read.status());
  REQUIRE(read.ok());
  CHECK(!read->has_nvlink());
  CHECK(BuildCluster(*read).ok());
}

// A box of eight L40S on two switches, from a preset with NVLink taken away.
std::string Run(const std::string& peers, const std::string& strategy,
                const std::string& model = "llama3-8b") {
  return absl::StrCat(
      "schedule: {name: 1f1b}\nmodel: {preset: ", model,
      "}\nsystem: {preset: dgx-a100, nvlink: {bandwidth: 0GBps}, "
      "pcie_per_switch: 4, pcie: {bandwidth: 25GBps, latency: 2us}, params: "
      "{pcie_peers: ",
      peers,
      "}}\ncosts: {analytic: {device: l40s}}\nstrategy: {microbatches: "
      "8, ",
      strategy, "}\n");
}

double MovingSeconds(const std::string& peers, const std::string& strategy,
                     const std::string& model = "llama3-8b") {
  const StageExchanges own =
      Prepared(Run(peers, strategy, model)).costs.passes.exchanges[0];
  double seconds = 0;
  double bytes = 0;
  for (const PassExchange& each : own.forward) {
    seconds += each.seconds - each.latency_s;
    bytes += each.bytes;
  }
  return seconds / bytes;
}

TEST_CASE("pcie peers: exchanges of tensor parallelism share the switch",
          "[config]") {
  // collective_sustained of l40s.
  constexpr double kReached = 0.8;
  const std::string eight = "pp: 1, tp: 8, sequence_parallel: true";
  // By way of the host all four devices of a switch send over its one link.
  CHECK(MovingSeconds("none", eight) ==
        Approx(4 / 25e9 / kReached).epsilon(0.03));
  // A ring leaves a switch once.
  CHECK(MovingSeconds("switch", eight) ==
        Approx(1 / 25e9 / kReached).epsilon(0.03));
  // Four groups of two at once: all on their switch, or all over its link.
  const std::string two = "pp: 1, tp: 2, dp: 4, sequence_parallel: true";
  CHECK(MovingSeconds("switch", two) ==
        Approx(1 / 25e9 / kReached).epsilon(0.03));
  CHECK(MovingSeconds("none", two) ==
        Approx(4 / 25e9 / kReached).epsilon(0.03));
}

TEST_CASE("pcie peers: NCCL's latencies of PCIe, and no LL128", "[cost]") {
  const NcclGroup group = {
      .ranks = 8, .channels = 2, .channel_GBps = 5, .has_nvlink = false};
  const auto latency_us = [&](CollectiveKind kind, const char* algorithm,
                              const char* protocol) {
    return 1e6 * NcclSeconds(kind, algorithm, protocol, group, 1);
  };
  // NCCL v2.28.9, tuning.cc: base latency and that of each step over PCI.
  CHECK(latency_us(CollectiveKind::kAllGather, "ring", "LL") ==
        Approx(6.6 + 7 * 1.0).margin(0.01));
  CHECK(latency_us(CollectiveKind::kAllReduce, "ring", "Simple") ==
        Approx(8.4 + 14 * 5.7).margin(0.01));
  CHECK(latency_us(CollectiveKind::kAllReduce, "tree", "LL") ==
        Approx(6.8 + 2 * 7 * 1.0).margin(0.01));
  CHECK(latency_us(CollectiveKind::kAllReduce, "ring", "LL128") < 0);
}

TEST_CASE("pcie peers: experts send to all over PCIe", "[config]") {
  const std::string experts =
      "pp: 1, dp: 8, ep: 8, data_parallel: zero1, dispatch: all-to-all";
  const double none = MovingSeconds("none", experts, "mixtral-8x7b");
  const double by_switch = MovingSeconds("switch", experts, "mixtral-8x7b");
  // What a device sends is for 7 others. By way of the host each switch has
  // 4 devices' 7 messages; with peers 4 devices' 4 messages, and a device's own
  // link 7.
  CHECK(none / by_switch == Approx(28.0 / 16).epsilon(0.1));
  // The bytes of such an exchange are those to each member.
  CHECK(none == Approx(28.0 / 25e9 / 0.8).epsilon(0.05));
}

TEST_CASE("pcie peers: a hop crosses the host and shares it with copies",
          "[config]") {
  const auto report = [](const std::string& peers, const std::string& more,
                         const std::string& engine) {
    RunContext context;
    const std::string run = absl::StrCat(
        "schedule: {name: 1f1b}\nsystem: {preset: dgx-a100, "
        "nvlink: {bandwidth: 0GBps}, pcie_per_switch: 4, pcie: "
        "{bandwidth: 25GBps, latency: 2us}, params: {pcie_peers: ",
        peers,
        "}}\ncosts: {uniform: {forward: 1ms, "
        "backward_input: 1ms, backward_weight: 1ms}, hop_bytes: "
        "250MB",
        more, "}\nstrategy: {pp: 2, microbatches: 1}\nengine: ", engine, "\n");
    const auto made = Simulate(ReadConfig(run, "test.yaml").value(), &context);
    INFO(run << made.status());
    REQUIRE(made.ok());
    return made->report;
  };
  // F, hop, F, BW, hop, BW: dgx-a100's host memory is wider than PCIe.
  const double hops_s = 2 * (250e6 / 25e9 + 2 * 2e-6);
  for (const char* engine : {"fast", "fluid", "simgrid"}) {
    INFO(engine);
    CHECK(report("none", "", engine).span_s.global ==
          Approx(6e-3 + hops_s).epsilon(1e-9));
    CHECK(report("switch", "", engine).span_s.global ==
          Approx(6e-3 + hops_s).epsilon(1e-9));
  }
}

}  // namespace
}  // namespace pipewright::pcie_peers_test
