// What pulls, pushes and rings put on the links of nodes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/dp_classes.h"
#include "sim/program/network_time.h"
#include "sim/trace/trace.h"
#include "tests/support/lowering.h"
#include "tests/support/odc_nodes.h"

namespace pipewright::odc_traffic_test {
namespace {

using testing::Nodes;
using testing::OdcOptions;

const SideOp& FirstOf(const Program& program, OpKind kind) {
  for (const SideOp& op : program.ranks[0].side_ops) {
    if (op.kind == kind) return op;
  }
  FAIL("no such operation");
  return program.ranks[0].side_ops[0];
}

// What all cards of a node take in while all its devices gather a layer once.
double IngressOf(const Nodes& nodes, const Program& program, int node) {
  double bytes = 0;
  const auto add = [&](const std::vector<LinkLoad>& loads, double each) {
    for (const LinkLoad& load : loads) {
      for (int place = 0; place < nodes.of_node; ++place) {
        if (load.link == nodes.In(node * nodes.of_node + place)) {
          bytes += load.flows * each;
        }
      }
    }
  };
  for (const SideOp& op : program.ranks[0].side_ops) {
    if (op.kind == OpKind::kAllGather) {
      const CollectivePlan plan = PlanCollective(
          program, op, GroupMembers(program, program.groups[op.group], 0));
      add(plan.loads, plan.bytes_per_edge);
      return bytes;
    }
    if (op.kind != OpKind::kPull) continue;
    const auto steps = static_cast<int>(op.peers->steps.size());
    for (int device = 0; device < nodes.devices; ++device) {
      for (int step = 0; step < steps; ++step) {
        add(PeerFlows(program, op, step, -1, device, 0).loads, op.bytes);
      }
    }
    return bytes;
  }
  FAIL("no gather");
  return 0;
}

TEST_CASE("odc: a node takes in what its devices pull, a ring crosses it once",
          "[engine]") {
  for (const auto& [devices, of_node] :
       std::vector<std::pair<int, int>>{{8, 4}, {16, 8}, {12, 2}, {6, 1}}) {
    const Nodes nodes = {devices, of_node};
    const Network network = nodes.Build();
    const auto schedule = Registered("1f1b", 1, 1);
    const double bytes = 48;
    INFO(devices << " devices, " << of_node << " a node");
    for (const bool apart : {false, true}) {
      LowerOptions odc = OdcOptions(nodes, network, DataParallel::kOdc, 1);
      odc.layers.pulls_apart = apart;
      CHECK(IngressOf(nodes, Lowered(schedule, odc), 1) ==
            Approx(of_node * bytes * (devices - of_node) / devices));
    }
    const LowerOptions fsdp =
        OdcOptions(nodes, network, DataParallel::kFsdp, 1);
    CHECK(IngressOf(nodes, Lowered(schedule, fsdp), 1) ==
          Approx(bytes * (devices - 1) / devices));
  }
}

TEST_CASE("odc: hpz and hsdp pull inside the node", "[engine]") {
  const Nodes nodes = {8, 4};
  const Network network = nodes.Build();
  const auto schedule = Registered("1f1b", 1, 2);
  LowerOptions options = OdcOptions(nodes, network, DataParallel::kOdc, 2);
  const auto far = [&](const Program& program, OpKind kind) {
    const SideOp& op = FirstOf(program, kind);
    double flows = 0;
    for (int step = 0; step < static_cast<int>(op.peers->steps.size());
         ++step) {
      for (const LinkLoad& load :
           PeerFlows(program, op, step, -1, 3, 0).loads) {
        if (load.link >= nodes.Out(0)) flows += load.flows;
      }
    }
    return flows;
  };
  const Program plain = Lowered(schedule, options);
  CHECK(far(plain, OpKind::kPull) > 0);
  options.layers.near_group = 4;
  const Program hpz = Lowered(schedule, options);
  CHECK(far(hpz, OpKind::kPull) == 0);
  CHECK(far(hpz, OpKind::kPush) > 0);  // to the owner of all
  options.layers.near_group = 0;
  options.layers.shard_group = 4;
  const Program hsdp = Lowered(schedule, options);
  CHECK(far(hsdp, OpKind::kPull) == 0);
  CHECK(far(hsdp, OpKind::kPush) == 0);
}

// The same by the clock of an engine: all cards of a node are one of 1 byte/s,
// and nothing else takes time, so that a gather lasts as many seconds as the
// card takes in bytes.
Network OneCard(int devices, int of_node) {
  const int nodes = devices / of_node;
  std::vector<Device> all;
  std::vector<Link> links;
  for (int device = 0; device < devices; ++device) {
    all.push_back({absl::StrCat("gpu", device), device / of_node});
  }
  for (int node = 0; node < nodes; ++node) {
    links.push_back({absl::StrCat("card", node), 1, 0});
  }
  const auto route = [of_node](int from, int to, std::vector<LinkId>* used) {
    if (from / of_node != to / of_node) used->push_back(to / of_node);
  };
  const auto none = [](int, std::vector<LinkId>*) {};
  auto cluster = std::make_shared<const Cluster>(
      "one card a node", std::move(all), std::move(links), route, none, none);
  std::vector<int> places(devices);
  std::iota(places.begin(), places.end(), 0);
  return NetworkOf(std::move(cluster), places, 1, devices);
}

TEST_CASE("odc: ingress of a node by the engines' clocks", "[engine]") {
  const auto schedule = Registered("1f1b", 1, 1);
  constexpr double kBytes = 48;
  for (const auto& [devices, of_node] :
       std::vector<std::pair<int, int>>{{8, 4}, {16, 8}, {12, 2}}) {
    INFO(devices << " devices, " << of_node << " a node");
    const Network network = OneCard(devices, of_node);
    const Nodes nodes = {devices, of_node};
    for (const bool ring : {false, true}) {
      LowerOptions options = OdcOptions(
          nodes, network, ring ? DataParallel::kFsdp : DataParallel::kOdc, 1);
      options.gradient_bytes = {0};
      const Program program = Lowered(schedule, options);
      for (const auto run : {&RunOnFluidClock, &RunSimgrid}) {
        FullTrace trace;
        EngineOptions traced;
        traced.trace = &trace;
        const auto summary = (*run)(program, traced);
        INFO(summary.status());
        REQUIRE(summary.ok());
        // The first gather, of the forward.
        double start_s = 1e9;
        double end_s = 0;
        for (const TraceOp& op : trace.ops()) {
          const bool gathers =
              op.kind == OpKind::kPull || op.kind == OpKind::kAllGather;
          if (!gathers || op.start_s > 0) continue;
          start_s = std::min(start_s, op.start_s);
          end_s = std::max(end_s, op.end_s);
        }
        CHECK(start_s == 0);
        const double expected =
            ring ? kBytes * (devices - 1) / devices
                 : of_node * kBytes * (devices - of_node) / devices;
        CHECK(end_s == Approx(expected).epsilon(1e-9));
      }
    }
  }
}

// What the cards of each node take in over a whole minibatch with classes of
// their own: pulls by the trace, each with its devices' routes spelled out.
TEST_CASE("odc: ingress of a minibatch by the trace of its pulls", "[engine]") {
  const Nodes nodes = {8, 4};
  const Network network = nodes.Build();
  constexpr int kLayers = 3;
  std::vector<Program> classes;
  std::vector<int> class_of_replica;
  std::vector<int> microbatches;
  for (int device = 0; device < nodes.devices; ++device) {
    microbatches.push_back(1 + device % 3);
    classes.push_back(
        Lowered(Registered("1f1b", 1, microbatches.back()),
                OdcOptions(nodes, network, DataParallel::kOdc, kLayers)));
    class_of_replica.push_back(device);
  }
  const auto joined = JoinClasses(std::move(classes), class_of_replica);
  REQUIRE(joined.ok());
  FullTrace trace;
  EngineOptions traced;
  traced.trace = &trace;
  REQUIRE(RunSimgrid(*joined, traced).ok());
  std::vector<double> taken(2, 0);   // [node] from the other one, by pulls
  std::vector<double> pushed(2, 0);  // the same by pushes
  std::vector<int> requests(nodes.devices, 0);
  for (const TraceOp& op : trace.ops()) {
    if (op.kind != OpKind::kPull && op.kind != OpKind::kPush) continue;
    const SideOp& side =
        joined->OfReplica(op.replica).ranks[0].side_ops[op.side_op];
    for (int other = 0; other < nodes.devices; ++other) {
      const bool far = other / nodes.of_node != op.replica / nodes.of_node;
      if (op.kind == OpKind::kPull && far) {
        taken[op.replica / nodes.of_node] += side.bytes;
      } else if (op.kind == OpKind::kPush) {
        if (far) pushed[other / nodes.of_node] += side.bytes;
        if (other != op.replica) ++requests[other];
      }
    }
  }
  // 48 bytes a layer, of which an eighth comes from each owner; two gathers
  // and a push of each of 3 layers a microbatch.
  for (int node = 0; node < 2; ++node) {
    double mine = 0;
    double theirs = 0;
    for (int device = 0; device < nodes.devices; ++device) {
      const bool own = device / nodes.of_node == node;
      (own ? mine : theirs) += microbatches[device];
    }
    CHECK(taken[node] == Approx(2 * kLayers * mine * 48 * 4 / 8));
    CHECK(pushed[node] == Approx(kLayers * theirs * 48 * 4 / 8));
  }
  // An owner adds what all others have asked it to.
  const int all = std::accumulate(microbatches.begin(), microbatches.end(), 0);
  for (int device = 0; device < nodes.devices; ++device) {
    CHECK(requests[device] == kLayers * (all - microbatches[device]));
  }
}

// What all devices take in is what all give: (D - 1) layers.
TEST_CASE("odc: every byte is pulled once from its owner", "[engine]") {
  const Nodes nodes = {12, 4};
  const Network network = nodes.Build();
  for (const bool apart : {false, true}) {
    LowerOptions options = OdcOptions(nodes, network, DataParallel::kOdc, 1);
    options.layers.pulls_apart = apart;
    const Program program = Lowered(Registered("1f1b", 1, 1), options);
    const SideOp& op = FirstOf(program, OpKind::kPull);
    std::vector<double> given(nodes.devices, 0);
    for (int device = 0; device < nodes.devices; ++device) {
      std::vector<int> met(nodes.devices, 0);
      for (const PeerPlan::Step& step : op.peers->steps) {
        for (const PeerPlan::Peer& peer : step.peers) {
          const int other = op.peers->ReplicaOf(peer, device, nodes.devices);
          ++met[other];
          given[other] += op.bytes;
        }
      }
      CHECK(met[device] == 0);
      CHECK(std::accumulate(met.begin(), met.end(), 0) == 11);
      CHECK(*std::max_element(met.begin(), met.end()) == 1);
    }
    for (const double bytes : given) CHECK(bytes == Approx(48.0 * 11 / 12));
  }
}

}  // namespace
}  // namespace pipewright::odc_traffic_test
