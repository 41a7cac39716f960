// Who shares a PCIe switch, and what plans and programs make of it; plans
// against the memory report.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/config/pcie_switches.h"
#include "sim/memory/schedule_memory.h"
#include "sim/run/simulated_run.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"
#include "tests/support/lowering.h"
#include "tests/support/prepare.h"
#include "tests/support/random_program.h"

namespace pipewright::offload_turns_test {
namespace {

using testing::Prepared;
using testing::Warns;
constexpr CopiesBeside kBoth = CopiesBeside::kBothWays;
constexpr CopiesBeside kSame = CopiesBeside::kSameWay;

// 8 devices on four switches of 8 GB/s.
ShapeParams Node() {
  ShapeParams params = SmallFabric(1, 8, 0);
  params.pcie_per_switch = 2;
  params.pcie = {.bytes_per_s = 8e9, .latency_s = 0};
  return params;
}

// One device a rank, the ranks of a replica next to each other.
Network Ranks(const ShapeParams& params, int pp, int dp) {
  std::vector<int> devices(pp * dp);
  std::iota(devices.begin(), devices.end(), 0);
  return NetworkOf(std::make_shared<Cluster>(BuildCluster(params).value()),
                   std::move(devices), pp, dp);
}

TEST_CASE("pcie switches: a root serves one copy of each switch at a time",
          "[config][offload]") {
  ShapeParams params = Node();
  const Network bare = Ranks(params, 8, 1);
  CHECK(PcieSwitches(bare, 1, 8).SharersOf(0, true, kBoth) == Approx(2));
  CHECK(PcieSwitches(bare, 1, 8).SharersInTurn(0, true, kBoth) == Approx(1));
  // Wide enough for four copies at once.
  params.own["root_bandwidth"] = "32GBps";
  const Network wide = Ranks(params, 8, 1);
  CHECK(PcieSwitches(wide, 1, 8).SharersOf(0, true, kBoth) == Approx(2));
  CHECK(PcieSwitches(wide, 1, 8).SharersInTurn(0, true, kBoth) == Approx(1));
  params.own["root_bandwidth"] = "16GBps";
  const Network narrow = Ranks(params, 8, 1);
  CHECK(PcieSwitches(narrow, 1, 8).SharersOf(0, true, kBoth) == Approx(4));
  CHECK(PcieSwitches(narrow, 1, 8).SharersInTurn(0, true, kBoth) == Approx(2));
}

TEST_CASE("pcie switches: both directions share the memory of the host",
          "[config][offload]") {
  ShapeParams params = Node();
  params.pcie_per_switch = 1;
  params.host.bytes_per_s = 10e9;
  const Network network = Ranks(params, 8, 1);
  const PcieSwitches switches(network, 1, 8);
  // O and L at 5 GB/s each rather than 8.
  CHECK(switches.SharersOf(0, true, kBoth) == Approx(1.6));
  CHECK(switches.SharersInTurn(0, true, kBoth) == Approx(1.6));
  CHECK(switches.DevicesOn(0) == 1);
  CHECK_FALSE(switches.IsShared(0));
}

// Two of eight devices copy: 32 GB/s of 80. All of a NUMA node do: 64 of 40.
TEST_CASE("pcie switches: idle neighbours leave their part of the memory",
          "[config][offload]") {
  ShapeParams params = Node();
  params.pcie_per_switch = 1;
  params.host.bytes_per_s = 10e9;
  CHECK(PcieSwitches(Ranks(params, 2, 1), 1, 2).SharersOf(0, true, kBoth) ==
        Approx(1));
  params.own["pcie_roots"] = "2";
  params.own["numa_nodes"] = "2";
  const Network half = Ranks(params, 4, 1);
  CHECK(PcieSwitches(half, 1, 4).SharersOf(0, true, kBoth) == Approx(1.6));
  // Its own L does not run, those of its neighbours do: 7 flows of 40 GB/s.
  CHECK(PcieSwitches(half, 1, 4).SharersOf(0, true, kSame) == Approx(1.4));
}

// Four switches that copy 16 GB/s each, both ways, and 12 one way: the fourth
// has 70 - 48 = 22 GB/s, more than it can take.
TEST_CASE("pcie switches: what others cannot take is no slowdown",
          "[config][offload]") {
  ShapeParams params = Node();
  params.own["pcie_alone_factor"] = "1.5";
  params.host.bytes_per_s = 70e9 / 8;
  const Network network = Ranks(params, 8, 1);
  const PcieSwitches switches(network, 1, 8);
  CHECK(switches.SharersInTurn(0, true, kSame) == Approx(1));
  CHECK(switches.SharersInTurn(0, true, kBoth) == Approx(1.5));
}

// By the numbers of the systems: 63 GB/s of each switch for 288 on A100, 126 of
// each device for 392 from H100 on.
TEST_CASE("pcie switches: who can fill the memory of a shipped host",
          "[config][offload]") {
  const auto fill = [](const char* system, int pp) {
    return CopiesFillMemory(Ranks(FindSystem(system).value(), pp, 1), 1, pp);
  };
  CHECK_FALSE(fill("dgx-a100", 8));
  CHECK_FALSE(fill("dgx-h100", 3));
  CHECK(fill("dgx-h100", 4));
  CHECK_FALSE(fill("gb200-nvl72", 8));  // nobody says how fast it is
  // Two NUMA nodes of four devices each: three of one fill it.
  ShapeParams halves = FindSystem("dgx-h100").value();
  halves.own["pcie_roots"] = halves.own["numa_nodes"] = "2";
  CHECK(CopiesFillMemory(Ranks(halves, 3, 1), 1, 3));
}

// 8 GB/s each way at once, 12 GB/s to the host alone.
TEST_CASE("pcie switches: to the host faster while nothing comes back",
          "[config][offload]") {
  ShapeParams params = Node();
  params.own["pcie_alone_factor"] = "1.5";
  const Network network = Ranks(params, 8, 1);
  const PcieSwitches switches(network, 1, 8);
  const Cluster& cluster = *network.cluster;
  CHECK(cluster.BandwidthOf(cluster.DeviceToHost(0)) == Approx(12e9));
  CHECK(cluster.BandwidthOf(cluster.HostToDevice(0)) == Approx(8e9));
  CHECK(switches.SharersInTurn(0, true, kSame) == Approx(1));
  CHECK(switches.SharersInTurn(0, false, kSame) == Approx(1));
  CHECK(switches.SharersInTurn(0, true, kBoth) == Approx(1.5));
  CHECK(switches.SharersInTurn(0, false, kBoth) == Approx(1));
  // Two devices on a switch: 4 GB/s each both ways, 6 GB/s one way.
  CHECK(switches.SharersOf(0, true, kSame) == Approx(2));
  CHECK(switches.SharersOf(0, true, kBoth) == Approx(3));
  CHECK(switches.SharersOf(0, false, kBoth) == Approx(2));
}

TEST_CASE("pcie switches: other replicas copy between two turns",
          "[config][offload]") {
  const ShapeParams params = Node();
  // Two replicas of rank 0 on one switch.
  const auto cluster = std::make_shared<Cluster>(BuildCluster(params).value());
  const Network side_by_side =
      NetworkOf(cluster, {0, 2, 4, 6, 1, 3, 5, 7}, 4, 2);
  const PcieSwitches switches(side_by_side, 2, 4);
  CHECK(switches.IsShared(0));
  CHECK(switches.ranks().size() == 4);
  CHECK(switches.SharersInTurn(0, true, kBoth) == Approx(2));
  const Network one_after_the_other = Ranks(params, 4, 2);
  CHECK(PcieSwitches(one_after_the_other, 2, 4).SharersInTurn(0, true, kBoth) ==
        Approx(1));
}

constexpr char kRun[] =
    "schedule: {name: 1f1b}\nmodel: {preset: gpt-tiny}\n"
    "system: {preset: dgx-a100}\nengine: simgrid\n"
    "costs: {uniform: {forward: 1s, backward_input: 1s, backward_weight: "
    "1s}}\n"
    "strategy: {pp: 4, offload: full, offload_sharing: in-turn, ";

// Replicas next to each other had parts of the bandwidth instead.
TEST_CASE("prepare: replicas on one switch copy in turn, too",
          "[config][offload]") {
  const PreparedRun run =
      Prepared(absl::StrCat(kRun, "dp: 2, microbatches: 8}"));
  REQUIRE(run.offload);
  CHECK(run.offload->ranks_share);
  CHECK(LowerRun(run).value().copies_in_turn);
  CHECK_FALSE(Warns(run, "offload_sharing"));
}

TEST_CASE("prepare: turns of replicas that differ are not settled, and said so",
          "[config][offload][dp_classes]") {
  const PreparedRun run = Prepared(absl::StrCat(
      kRun, "dp_classes: {replicas: [1, 1], microbatches: [8, 6]}}"));
  CHECK(Warns(run,
              "offload_sharing in-turn: replicas have different orders of "
              "passes (strategy.dp_classes)"));
  const PreparedRun slower =
      Prepared(absl::StrCat(kRun,
                            "dp_classes: {replicas: [1, 1], microbatches: [8, "
                            "8], slower: [1, 1.3]}}"));
  CHECK(Warns(slower,
              "offload_sharing in-turn: passes of replicas take "
              "different times (strategy.dp_classes)"));
}

TEST_CASE(
    "simulate: turns are dropped where an iteration begins twice, and "
    "said so",
    "[config][offload]") {
  const auto warnings = [](const std::string& more) {
    return Simulate(Prepared(absl::StrCat(kRun, "dp: 1, microbatches: 8", more,
                                          "}")),
                    {})
        .value()
        .report.warnings;
  };
  const auto says = [](const std::string& warning) {
    return absl::StartsWith(
        warning,
        "strategy.offload_sharing in-turn: an iteration begins twice "
        "(strategy.rollback_iterations), so turns on a PCIe switch are not "
        "settled");
  };
  const std::string validated = ", optimizer: post-validated";
  const auto once = warnings(validated);
  CHECK(std::none_of(once.begin(), once.end(), says));
  const auto twice =
      warnings(validated + ", rollback_iterations: [1], validation: no-wait");
  CHECK(std::count_if(twice.begin(), twice.end(), says) == 1);
}

// A split B leaves more to its W than the share of costs.held_until_weight
// says.
TEST_CASE("prepare: a plan's peaks are those of the memory report",
          "[config][offload][memory]") {
  for (const char* const schedule : {"1f1b", "zb-h1", "zb-v"}) {
    const PreparedRun run = Prepared(absl::StrCat(
        "schedule: {name: ", schedule,
        "}\nmodel: {preset: gpt-tiny}\nsystem: {preset: dgx-a100}\n"
        "costs: {uniform: {forward: 1s, backward_input: 1s, backward_weight: "
        "1s}}\nstrategy: {pp: 4, microbatches: 8, offload: full}\n"));
    REQUIRE(run.offload);
    REQUIRE(run.offload->ranks.size() == 4);
    for (int rank = 0; rank < 4; ++rank) {
      CAPTURE(schedule, rank);
      const RankOffload& planned = run.offload->ranks[rank];
      CHECK(planned.peak_after ==
            Approx(run.memory->memory->ranks[rank].peak_activations));
      if (rank == 0) CHECK(planned.peak_after < planned.peak_before);
    }
  }
}

}  // namespace
}  // namespace pipewright::offload_turns_test
