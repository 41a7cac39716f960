// The analytic model, what planners are told and the engines have one network:
// the same bandwidth for the same devices.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/config/prepare_parts.h"
#include "sim/cost/analytic.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/network_time.h"
#include "tests/support/device_flows.h"
#include "tests/support/lowering.h"
#include "tests/support/prepare.h"

namespace pipewright::network_agreement_test {
namespace {

// An all-gather of `bytes` among the n-th devices of `members` ranks of `tp`
// next to each other, all n at once.
double Gathered(const ShapeParams& params, int members, int tp, double bytes) {
  std::vector<int> devices(members);
  for (int member = 0; member < members; ++member) {
    devices[member] = member * tp;
  }
  LowerOptions options;
  options.costs = PassCosts::Uniform(1, 1, {});
  options.replicas = members;
  options.iterations = 1;
  options.network =
      NetworkOf(std::make_shared<Cluster>(BuildCluster(params).value()),
                devices, 1, members, tp);
  Program program = Lowered(Registered("gpipe", 1, 1), options);
  program.groups.push_back({.ranks = {0}});
  AttachOp(program, 0, 0,
           {.kind = OpKind::kAllGather,
            .stream = Stream::kCollective,
            .bytes = bytes,
            .group = 0});
  const auto summary = RunFast(program, {});
  INFO(summary.status());
  REQUIRE(summary.ok());
  return summary->iteration_s();
}

// What the analytic model takes a group of the same devices to have of the
// network, against the rings of the engines. Bytes without end: what is left
// is bandwidth.
TEST_CASE("network: analytic collectives have that of the engines",
          "[engine][cost]") {
  int compared = 0;
  for (const int nics : {1, 2, 4, 8}) {
    for (const int tp : {1, 2, 4, 8}) {
      for (const int members : {2, 4, 8, 16}) {
        if (tp * members % 8 != 0 || tp * members <= 8) continue;
        INFO(nics << " NICs, tp " << tp << ", " << members << " members");
        ShapeParams params;
        params.name = params.shape = "nic-switch";
        params.nodes = tp * members / 8;
        params.devices_per_node = 8;
        params.nics_per_node = nics;
        params.nvlink = {.bytes_per_s = 450e9, .source = "test"};
        params.nic = {.bytes_per_s = 25e9, .source = "test"};
        const AnalyticOptions analytic = {.device = *FindDevice("a100-80gb"),
                                          .network = NetworkOf(params)};
        const double bytes = 1e15;
        const double stated_s = CommSeconds(analytic, {.tp = tp, .cp = members},
                                            {.kind = CommKind::kAllGather,
                                             .group = CommGroup::kContext,
                                             .members = members,
                                             .bytes = bytes});
        CHECK(Gathered(params, members, tp, bytes) ==
              Approx(stated_s).epsilon(1e-6));
        ++compared;
      }
    }
  }
  CHECK(compared == 4 * 10);
}

// What planners and reports are told a hop takes is what it takes.
TEST_CASE("network: the hop that is stated is the hop that runs",
          "[engine][config]") {
  for (const int tp : {1, 2, 8}) {
    for (const int64_t nics : {1, 2, 8}) {
      INFO("tp " << tp << ", " << nics << " NICs");
      RunConfig config;
      config.system.preset = "dgx-a100";
      config.system.nics_per_node = nics;
      const RunSizes sizes = {.pp = 4, .dp = 2, .tp = tp, .microbatches = 4};
      const double bytes = 64 << 20;
      std::vector<std::string> warnings;
      RunContext context;
      const auto stated = PrepareNetwork(config, sizes, std::nullopt, bytes,
                                         "fast", &context, &warnings);
      INFO(stated.status());
      REQUIRE(stated.ok());
      const auto schedule = Registered("gpipe", 4, 4);
      LowerOptions options;
      options.costs = CostsOf(
          *schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
      options.hop_bytes = bytes;
      options.replicas = 2;
      options.iterations = 1;
      options.network = stated->links;
      FullTrace trace;
      const Program program = Lowered(schedule, options);
      REQUIRE(RunFast(program, {.trace = &trace}).ok());
      double longest_s = 0;
      for (const TraceOp& op : trace.ops()) {
        if (op.kind != OpKind::kSend) continue;
        longest_s = std::max(longest_s, op.end_s - op.start_s);
      }
      CHECK(longest_s == Approx(stated->hop_s).epsilon(1e-9));
      // Two NICs of a node carry the flows of eight devices: four each.
      if (tp != 8) continue;
      CHECK(stated->hop_s ==
            Approx(NaiveTransferSeconds(program, program.channels[0], 0))
                .epsilon(1e-9));
    }
  }
}

// Seconds of one iteration of a configuration.
double IterationOf(const std::string& text, const std::string& engine) {
  const PreparedRun run =
      testing::Prepared(absl::StrCat(text, "engine: ", engine, "\n"));
  const auto program = Lower(run.schedule.lowered, run.lower);
  REQUIRE(program.ok());
  const auto summary =
      engine == "fast" ? RunFast(*program, {}) : RunSimgrid(*program, {});
  INFO(summary.status());
  REQUIRE(summary.ok());
  return summary->iteration_s();
}

// Sixteen devices, and eight flows each way through one card.
TEST_CASE("network: eight devices of a rank or eight replicas on one card",
          "[engine][config]") {
  const auto iteration_s = [](int tp, int dp, const std::string& engine) {
    return IterationOf(
        absl::StrCat("schedule: {name: gpipe}\n"
                     "system: {shape: nic-switch, devices_per_node: 8, "
                     "nics_per_node: 1, "
                     "nvlink: {bandwidth: 450GBps, latency: 0}, "
                     "nic: {bandwidth: 50GBps, latency: 0}}\n"
                     "strategy: {pp: 2, microbatches: 1, tp: ",
                     tp, ", dp: ", dp,
                     ", data_parallel: none}\n"
                     "costs: {hop_bytes: 64MiB, uniform: {forward: 10ms, "
                     "backward_input: 5ms, backward_weight: 5ms}}\n"
                     "iterations: 1\n"),
        engine);
  };
  const double alone_s = (64 << 20) / 50e9;
  for (const std::string engine : {"fast", "simgrid"}) {
    INFO(engine);
    CHECK(iteration_s(8, 1, engine) ==
          Approx(0.04 + 2 * 8 * alone_s).epsilon(1e-9));
  }
  CHECK(iteration_s(1, 8, "simgrid") ==
        Approx(0.04 + 2 * 8 * alone_s).epsilon(1e-9));
  CHECK(iteration_s(1, 8, "fast") == Approx(0.04 + 2 * alone_s).epsilon(1e-9));
}

// Gradients of 8 * 8 devices of each rank: all eight cards of a node, or one.
TEST_CASE("network: fewer cards, longer reduction", "[engine][config]") {
  const auto iteration_s = [](int nics, bool overlap) {
    return IterationOf(
        absl::StrCat("schedule: {name: 1f1b}\nmodel: {preset: gpt-175b}\n"
                     "system: {preset: dgx-a100, nodes: 64, nics_per_node: ",
                     nics,
                     "}\nstrategy: {pp: 8, tp: 8, dp: 8, microbatches: 8, "
                     "overlap_gradients: ",
                     overlap ? "true" : "false", "}\ncosts: {analytic: {}}\n"),
        "fast");
  };
  CHECK(iteration_s(1, false) > 2 * iteration_s(8, false));
  CHECK(iteration_s(1, true) > 2 * iteration_s(8, true));
}

}  // namespace
}  // namespace pipewright::network_agreement_test
