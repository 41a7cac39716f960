// Slow devices and links: against the naive engine with the times of that
// device multiplied in the costs, and against systems that are slower as a
// whole.
#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/program/dp_classes.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/program/slow_devices.h"
#include "sim/run/monte_carlo.h"
#include "sim/run/simulated_run.h"
#include "tests/support/prepare.h"
#include "tests/support/reference_engine.h"

namespace pipewright::testing::slow_run_test {
namespace {

constexpr double kForward = 3;
constexpr double kInput = 5;
constexpr double kWeight = 7;

struct Setting {
  int pp = 2;
  int dp = 2;
  int microbatches = 4;
  std::string schedule = "zb-h1";
  std::string engine = "fast";
};

// `factors`: of the ranks, in the lists of the costs; empty: none.
std::string Yaml(const Setting& setting, const std::vector<double>& factors,
                 const std::string& more) {
  const auto list = [&](double seconds) {
    std::vector<std::string> times;
    for (int rank = 0; rank < setting.pp; ++rank) {
      const double factor = factors.empty() ? 1 : factors[rank];
      times.push_back(absl::StrFormat("'%.17gms'", seconds * factor));
    }
    return absl::StrJoin(times, ", ");
  };
  return absl::StrCat("schedule: {name: ", setting.schedule,
                      "}\nengine: ", setting.engine,
                      "\nstrategy: {pp: ", setting.pp, ", dp: ", setting.dp,
                      ", microbatches: ", setting.microbatches,
                      ", data_parallel: ddp}\niterations: 2\ncosts: {p2p: 1ms, "
                      "gradient_bytes: 1MiB, per_stage: {forward: [",
                      list(kForward), "], backward_input: [", list(kInput),
                      "], backward_weight: [", list(kWeight), "]}}\n", more);
}

SimulatedRun RunText(const std::string& yaml) {
  absl::StatusOr<SimulatedRun> run = Simulate(Prepared(yaml), {});
  INFO(run.status());
  REQUIRE(run.ok());
  return *std::move(run);
}

// The naive engine on replicas whose costs have the factors, a class each.
double ReferenceStep(const Setting& setting,
                     const std::vector<std::vector<double>>& classes,
                     std::vector<int> class_of_replica) {
  std::vector<Program> programs;
  for (const std::vector<double>& factors : classes) {
    const PreparedRun run = Prepared(Yaml(setting, factors, ""));
    absl::StatusOr<Program> program = Lower(run.schedule.lowered, run.lower);
    REQUIRE(program.ok());
    programs.push_back(*std::move(program));
  }
  for (Program& program : programs) {
    program.network = programs[0].network;
  }
  const absl::StatusOr<Program> joined =
      JoinClasses(std::move(programs), std::move(class_of_replica));
  INFO(joined.status());
  REQUIRE(joined.ok());
  const absl::StatusOr<RunSummary> run = RunReference(*joined);
  REQUIRE(run.ok());
  return run->iteration_s();
}

TEST_CASE("slow: one device of 4096 that is 1.44 times slower", "[slow]") {
  for (const char* engine : {"fast", "simgrid"}) {
    const Setting setting = {.pp = 16,
                             .dp = 256,
                             .microbatches = 4,
                             .schedule = "1f1b",
                             .engine = engine};
    const SimulatedRun run = RunText(
        Yaml(setting, {}, "slow: {devices: ['replica37/rank5*1.44']}\n"));
    std::vector<double> slow(16, 1);
    slow[5] = 1.44;
    std::vector<int> class_of_replica(256, 0);
    class_of_replica[37] = 1;
    const double reference =
        ReferenceStep(setting, {{}, slow}, class_of_replica);
    INFO(engine);
    CHECK(run.report.iteration_s == Approx(reference).epsilon(1e-9).margin(0));
    CHECK(run.report.iteration_s >
          1.01 * RunText(Yaml(setting, {}, "")).report.iteration_s);
    // The report names it, and its replica's class.
    REQUIRE(run.report.slow.has_value());
    const SlowReport::Part& devices = *run.report.slow->devices;
    CHECK(devices.all == 4096);
    CHECK(devices.slower == 1);
    REQUIRE(devices.slowest.size() == 1);
    CHECK(devices.slowest[0].replica == 37);
    CHECK(devices.slowest[0].rank == 5);
    CHECK(devices.slowest[0].factor == 1.44);
    CHECK(absl::StrContains(SlowToText(*run.report.slow),
                            "rank 5 of replica 37, 1.44 times as long"));
    REQUIRE(run.report.dp_classes.has_value());
    const DpClassReport& slowest =
        run.report.dp_classes->classes[run.report.dp_classes->slowest];
    CHECK(slowest.first_replica == 37);
    CHECK(slowest.slow_rank == 5);
    CHECK(slowest.slower == 1.44);
  }
}

TEST_CASE("slow: devices by a law, each replica its own", "[slow]") {
  for (const char* law :
       {"lognormal:20%", "uniform:0.8-1.5", "fixed:1.44@20%"}) {
    for (const char* engine : {"fast", "simgrid"}) {
      const Setting setting = {
          .pp = 4, .dp = 6, .microbatches = 8, .engine = engine};
      const SimulatedRun run = RunText(
          Yaml(setting, {},
               absl::StrCat("slow: {devices_law: '", law, "', seed: 5}\n")));
      const DeviceFactors factors = run.prepared.slow->OfRanks();
      REQUIRE(factors.size() == 24);
      std::vector<std::vector<double>> classes;
      for (int replica = 0; replica < 6; ++replica) {
        classes.emplace_back(factors.begin() + replica * 4,
                             factors.begin() + replica * 4 + 4);
      }
      std::vector<int> all(6);
      std::iota(all.begin(), all.end(), 0);
      INFO(law << " " << engine);
      CHECK(run.report.iteration_s ==
            Approx(ReferenceStep(setting, classes, all)).epsilon(1e-9));
    }
  }
}

TEST_CASE("slow: the optimizer step of a slow device too", "[slow]") {
  const auto step = [](const std::string& slow, const char* optimizer) {
    return RunText(absl::StrCat(
                       "schedule: {name: gpipe}\nengine: fast\nstrategy: {pp: "
                       "1, microbatches: 2, optimizer: ",
                       optimizer,
                       "}\ncosts: {uniform: {forward: 1s, backward_input: 1s, "
                       "backward_weight: 1s}, optimizer_time: 2s}\n",
                       slow))
        .report.iteration_s;
  };
  CHECK(step("", "synchronised") == Approx(8));
  CHECK(step("slow: {devices: ['rank0*1.5']}\n", "synchronised") == Approx(12));
}

TEST_CASE("slow: a rank is as slow as the slowest of its devices", "[slow]") {
  const std::string base =
      "schedule: {name: gpipe}\nengine: fast\nmodel: {preset: gpt-tiny}\n"
      "system: {preset: dgx-h100}\nstrategy: {pp: 2, tp: 2, dp: 2, "
      "microbatches: 2}\ncosts: {uniform: {forward: 1s, backward_input: 1s, "
      "backward_weight: 1s}}\n";
  const double plain = RunText(base).report.iteration_s;
  // Ranks are next to each other, replicas first: gpu6 and gpu7 are rank 1 of
  // replica 1.
  const SimulatedRun run =
      RunText(base + "slow: {devices: ['node0/gpu6*2', 'node0/gpu7*1.5']}\n");
  const DeviceFactors factors = run.prepared.slow->OfRanks();
  CHECK(factors == DeviceFactors{1, 1, 1, 2});
  CHECK(run.report.iteration_s > 1.3 * plain);
  const SlowReport::Part& devices = *run.report.slow->devices;
  CHECK(devices.all == 8);
  CHECK(devices.slowest[0].name == "node0/gpu6");
  CHECK(devices.slowest[0].replica == 1);
  CHECK(devices.slowest[0].rank == 1);
  // A whole node, and names that come together.
  const SimulatedRun node =
      RunText(base + "slow: {devices: ['node0*2', 'rank1*1.5']}\n");
  CHECK(node.prepared.slow->OfRanks() == DeviceFactors{2, 3, 2, 3});
  // Memory is that of all replicas.
  CHECK(run.report.memory.has_value());
}

constexpr char kLinked[] =
    "schedule: {name: 1f1b}\nstrategy: {pp: 4, dp: 2, microbatches: 4, "
    "data_parallel: zero1}\ncosts: {uniform: {forward: 1ms, "
    "backward_input: 1ms, backward_weight: 1ms}, hop_bytes: 64MiB, "
    "gradient_bytes: 4GiB}\n";

std::string System(double factor) {
  return absl::StrCat(
      "system: {shape: nic-switch, devices_per_node: 4, nics_per_node: 2, "
      "nvlink: {bandwidth: ",
      100 / factor, "GBps, latency: ", 2 * factor,
      "us}, nic: {bandwidth: ", 10 / factor, "GBps, latency: ", 5 * factor,
      "us}}\n");
}

TEST_CASE("slow: all links slower are a slower system", "[slow]") {
  for (const char* engine : {"engine: fast\n", "engine: simgrid\n"}) {
    const std::string base = absl::StrCat(kLinked, engine);
    const double slower = RunText(base + System(2)).report.iteration_s;
    const SimulatedRun law =
        RunText(base + System(1) + "slow: {links_law: 'fixed:2'}\n");
    INFO(engine);
    CHECK(law.report.iteration_s == Approx(slower).epsilon(1e-9));
    CHECK(law.report.iteration_s >
          1.2 * RunText(base + System(1)).report.iteration_s);
    CHECK(law.report.slow->links->slower == law.report.slow->links->all);
  }
}

TEST_CASE("slow: one link slows those that cross it", "[slow]") {
  // Two ranks, 2^27 bytes a hop over links of 2^27 bytes a second.
  const std::string base =
      "schedule: {name: gpipe}\nengine: fast\nstrategy: {pp: 2, microbatches: "
      "1}\niterations: 1\ncosts: {uniform: {forward: 1s, backward_input: 1s, "
      "backward_weight: 1s}, hop_bytes: 128MiB}\nsystem: {shape: node, "
      "devices_per_node: 2, nvlink: {bandwidth: 128MiBps, latency: 100ms}}\n";
  // F, hop, F, BW, hop, BW; a hop crosses two links of 100 ms.
  CHECK(RunText(base).report.iteration_s == Approx(1 + 1.2 + 3 + 1.2 + 2));
  const SimulatedRun run =
      RunText(base + "slow: {links: ['node0/gpu1/nvlink-down*3']}\n");
  CHECK(run.report.iteration_s == Approx(1 + (0.1 + 0.3 + 3) + 3 + 1.2 + 2));
  CHECK(run.report.slow->links->slower == 1);
  CHECK(run.report.slow->links->slowest[0].name == "node0/gpu1/nvlink-down");
  // All of a device's links: both ways.
  CHECK(
      RunText(base + "slow: {links: ['node0/gpu1*3']}\n").report.iteration_s ==
      Approx(1 + 3.4 + 3 + 3.4 + 2));
}

TEST_CASE("slow: every draw has devices and links of its own", "[slow]") {
  const std::string yaml = absl::StrCat(kLinked, System(1), "engine: fast\n",
                                        "slow: {devices_law: 'lognormal:20%', "
                                        "links_law: 'uniform:1-3'}\n");
  absl::StatusOr<RunConfig> config = ReadConfig(yaml, "run.yaml");
  REQUIRE(config.ok());
  RunContext context;
  const absl::StatusOr<MonteCarlo> drawn =
      RunMonteCarlo({{"", *config}}, 3, 1, &context);
  INFO(drawn.status());
  REQUIRE(drawn.ok());
  for (const std::string& warning : drawn->warnings) {
    CHECK(!absl::StrContains(warning, "all draws are alike"));
  }
  std::vector<double> alone;
  for (int seed = 0; seed < 3; ++seed) {
    config->costs.seed = seed;
    const absl::StatusOr<SimulatedRun> run = Simulate(*config, &context, {});
    REQUIRE(run.ok());
    alone.push_back(run->report.iteration_s);
  }
  CHECK(drawn->strategies[0].iterations_s == alone);
  CHECK(alone[0] != alone[1]);
  CHECK(alone[1] != alone[2]);
}

TEST_CASE("slow: a law without spread draws nothing", "[slow]") {
  for (const auto& [law, says] :
       {std::pair("fixed:2", true), std::pair("uniform:2-2", true),
        std::pair("fixed:2@50%", false), std::pair("uniform:1-2", false)}) {
    INFO(law);
    const absl::StatusOr<RunConfig> config = ReadConfig(
        absl::StrCat(kLinked, System(1), "engine: fast\nslow: {devices_law: '",
                     law, "'}\n"),
        "run.yaml");
    REQUIRE(config.ok());
    RunContext context;
    const absl::StatusOr<MonteCarlo> drawn =
        RunMonteCarlo({{"", *config}}, 2, 1, &context);
    REQUIRE(drawn.ok());
    CHECK(absl::StrContains(absl::StrJoin(drawn->warnings, "\n"),
                            "all draws are alike") == says);
  }
}

TEST_CASE("slow: a link keeps its draw where a system gets more links",
          "[slow]") {
  const std::string yaml =
      absl::StrCat(kLinked, "engine: fast\nslow: {links_law: 'uniform:1-3'}\n");
  const auto step = [&](const std::string& more) {
    absl::StatusOr<RunConfig> config =
        ReadConfig(absl::StrCat(yaml, System(1)), "run.yaml");
    REQUIRE(config.ok());
    if (!more.empty()) config->system.pcie.bytes_per_s = 1e10;
    RunContext context;
    const absl::StatusOr<SimulatedRun> run = Simulate(*config, &context, {});
    INFO(run.status());
    REQUIRE(run.ok());
    return std::pair(run->report.iteration_s, run->report.slow->links->all);
  };
  const auto [seconds, links] = step("");
  const auto [with_pcie_seconds, with_pcie_links] = step("pcie");
  CHECK(with_pcie_links == links);  // nothing is copied
  CHECK(with_pcie_seconds == seconds);
}

TEST_CASE("slow: scaling devices keeps alike replicas in one class", "[slow]") {
  const PreparedRun run = Prepared(Yaml({.pp = 2, .dp = 5}, {}, ""));
  absl::StatusOr<Program> program = LowerRun(run);
  REQUIRE(program.ok());
  ScaleDevices({1, 2, 1, 1, 1, 2, 3, 1, 1, 1}, {}, &*program);
  CHECK(program->num_classes() == 3);
  CHECK(program->class_of_replica == std::vector<int>{0, 1, 0, 2, 1});
  const Lane& fast = program->dp_class(1).ranks[1].lanes[0];
  const Lane& slow = program->dp_class(0).ranks[1].lanes[0];
  CHECK(slow.seconds == 2 * fast.seconds);
  // Factors of 1 change nothing.
  absl::StatusOr<Program> same = LowerRun(run);
  REQUIRE(same.ok());
  ScaleDevices(DeviceFactors(10, 1), {}, &*same);
  CHECK(same->num_classes() == 1);
  CHECK(same->class_of_replica.empty());
}

TEST_CASE("slow: what names nothing is refused", "[slow]") {
  const auto refuse = [](const std::string& yaml, const char* field,
                         const char* words) {
    const absl::StatusOr<PreparedRun> run = PrepareText(yaml);
    INFO(yaml << "\n" << run.status());
    REQUIRE(run.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(run.status().message(), field));
    CHECK(absl::StrContains(run.status().message(), words));
  };
  const std::string plain = Yaml({}, {}, "");
  const std::string linked = absl::StrCat(kLinked, System(1));
  const auto devices = [](const char* item) {
    return absl::StrCat("slow: {devices: ['", item, "']}\n");
  };
  const auto links = [](const char* item) {
    return absl::StrCat("slow: {links: ['", item, "']}\n");
  };
  refuse(plain + devices("rank0"), "slow.devices", "NAME*FACTOR");
  refuse(plain + devices("rank0*0"), "slow.devices", "a factor from 1e-06");
  refuse(plain + devices("rank0*x"), "slow.devices", "NAME*FACTOR");
  refuse(plain + devices("*2"), "slow.devices", "NAME*FACTOR");
  refuse(plain + "slow: {devices: ['rank0*2', 'rank0*3']}\n", "slow.devices",
         "each name once");
  refuse(plain + devices("rank2*2"), "slow.devices", "rank0 to rank1");
  refuse(plain + devices("replica2*2"), "slow.devices", "replica0 to replica1");
  refuse(plain + devices("rank1/replica0*2"), "slow.devices", "replica0/rank0");
  refuse(plain + devices("node0/gpu0*2"), "slow.devices", "without a system");
  refuse(linked + devices("node7*2"), "slow.devices", "or their nodes");
  refuse(linked + devices("node0/gp*2"), "slow.devices", "node0/gpu0");
  refuse(plain + links("node0*2"), "system.preset", "slow.links");
  refuse(plain + "slow: {links_law: 'fixed:2'}\n", "system.preset", "missing");
  refuse(linked + links("node0/gpu0/nvlink-upp*2"), "slow.links",
         "node0/gpu0/nvlink-up");
  refuse(linked + links("node0"), "slow.links", "NAME*FACTOR");
  refuse(linked + "slow: {links_law: 'gauss'}\n", "slow.links_law",
         "lognormal:SIGMA%");
  refuse(plain + "slow: {devices_law: 'fixed'}\n", "slow.devices_law",
         "fixed:FACTOR");
  refuse(
      "schedule: {name: 1f1b}\nstrategy: {pp: 2, microbatches: 2, "
      "dp_classes: {replicas: [1, 1], slower: [1, 2]}}\n"
      "costs: {p2p: 1ms}\nslow: {devices: ['rank0*2']}\n",
      "strategy.dp_classes.replicas", "slow.devices");
}

}  // namespace
}  // namespace pipewright::testing::slow_run_test
