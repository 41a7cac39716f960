// What a run takes where nobody says it.
#include <catch2/catch.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/config/prepare.h"
#include "tests/support/prepare.h"

namespace pipewright::prepare_defaults_test {
namespace {

using testing::PrepareText;
using testing::Warns;

constexpr char kModel[] = "model: {preset: llama3-8b}\n";
constexpr char kSystem[] = "system: {preset: dgx-h100}\n";

PreparedRun Prepared(const std::string& yaml) {
  const absl::StatusOr<PreparedRun> run = PrepareText(yaml);
  INFO(run.status());
  REQUIRE(run.ok());
  return *run;
}

std::string Refusal(const std::string& yaml) {
  const absl::Status status = PrepareText(yaml).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST_CASE("defaults: a model on a system is estimated without asking",
          "[config]") {
  const std::string rest =
      absl::StrCat(kModel, kSystem, "schedule: {name: 1f1b}\n",
                   "strategy: {pp: 4, dp: 1, microbatches: 8}\n");
  const PreparedRun run = Prepared(rest);
  REQUIRE(run.costs.analytic);
  CHECK(!run.costs.in_units);
  const PreparedRun asked =
      Prepared(absl::StrCat(rest, "costs: {analytic: {}}\n"));
  for (int stage = 0; stage < 4; ++stage) {
    CHECK(run.lower.costs.stages[stage].forward_s ==
          asked.lower.costs.stages[stage].forward_s);
    CHECK(run.lower.costs.stages[stage].forward_s < 0.1);
  }
  CHECK(asked.warnings.empty());
  REQUIRE(run.warnings.size() == 1);
  CHECK(absl::StrContains(run.warnings[0], "costs: no times are given"));
  // Times that are given stay.
  const PreparedRun given = Prepared(
      absl::StrCat(rest, "costs: {uniform: {forward: 1s, backward: 2s}}\n"));
  CHECK(!given.costs.analytic);
  CHECK(given.lower.costs.stages[0].forward_s == 1);
}

TEST_CASE("defaults: the schedule is 1f1b, interleaved with chunks",
          "[config]") {
  const PreparedRun plain = Prepared("strategy: {pp: 4, microbatches: 8}\n");
  CHECK(plain.schedule.written->name == "1f1b");
  CHECK(Warns(plain, "schedule.name: none is given: 1f1b"));
  const PreparedRun chunks =
      Prepared("strategy: {pp: 4, microbatches: 8, vpp: 2}\n");
  CHECK(chunks.schedule.written->name == "interleaved-1f1b");
  CHECK(chunks.schedule.written->vpp() == 2);
  CHECK(Warns(chunks, "interleaved-1f1b, as strategy.vpp is above 1"));
  CHECK(!Warns(Prepared("schedule: {name: gpipe}\n"
                        "strategy: {pp: 4, microbatches: 8}\n"),
               "schedule.name"));
}

TEST_CASE("defaults: without degrees replicas fill the nodes", "[config]") {
  const auto sizes = [](const std::string& system,
                        const std::string& strategy) {
    const PreparedRun run = Prepared(absl::StrCat(
        kModel, "system: {preset: dgx-h100", system, "}\nstrategy: {", strategy,
        strategy.empty() ? "" : ", ",
        absl::StrContains(strategy, "global_batch") ? "" : "microbatches: 8",
        "}\n"));
    const StrategyChoice& found = run.config.strategy;
    return absl::StrCat(*found.pp, " ", *found.dp, " ",
                        run.network.system_shape()->nodes, " ",
                        Warns(run, "which fills") ? "said" : "silent");
  };
  CHECK(sizes("", "") == "1 8 1 said");
  CHECK(sizes(", nodes: 2", "") == "1 16 2 said");
  CHECK(sizes(", nodes: 2", "tp: 8") == "1 2 2 said");
  CHECK(sizes(", nodes: 2", "pp: 2") == "2 8 2 said");
  // A degree alone leaves no device of its nodes idle.
  CHECK(sizes("", "pp: 1") == "1 8 1 said");
  CHECK(sizes("", "pp: 2") == "2 4 1 said");
  CHECK(sizes("", "pp: 8") == "8 1 1 silent");
  CHECK(sizes("", "pp: 16") == "16 1 2 silent");
  CHECK(sizes("", "tp: 4") == "1 2 1 said");
  CHECK(sizes("", "cp: 2") == "1 4 1 said");
  CHECK(sizes("", "pp: 2, global_batch: 6").substr(0, 5) == "2 3 1");
  // With several and no nodes the run is as large as it says.
  CHECK(sizes("", "pp: 2, tp: 2") == "2 1 1 silent");
  CHECK(sizes(", nodes: 2", "pp: 2, dp: 4") == "2 4 2 silent");
  CHECK(sizes(", nodes: 1", "pp: 2, mapping: [3, 4]") == "2 1 1 silent");
  const PreparedRun device =
      Prepared(absl::StrCat(kModel,
                            "costs: {analytic: {device: h100}}\n"
                            "strategy: {microbatches: 8}\n"));
  CHECK(*device.config.strategy.pp == 1);
  CHECK(*device.config.strategy.dp == 1);
  CHECK(Warns(device, "strategy.pp: not given: pp 1"));
}

TEST_CASE("defaults: what a degree alone cannot fill is said", "[config]") {
  const auto run = [](const std::string& strategy) {
    return Prepared(absl::StrCat(kModel, kSystem, "strategy: {", strategy,
                                 ", microbatches: 12, split: balanced}\n"));
  };
  const PreparedRun three = run("pp: 3");
  CHECK(*three.config.strategy.dp == 2);
  CHECK(Warns(three, "dp 2; 2 of the 8 devices of one node stay idle"));
  const PreparedRun five = run("pp: 5");
  CHECK(*five.config.strategy.dp == 1);
  CHECK(Warns(five, "dp 1; 3 of the 8 devices of one node stay idle"));
  // Replicas that are given leave tensor parallelism, as far as the 8 key and
  // value heads go.
  const PreparedRun two = run("dp: 2");
  CHECK(*two.config.strategy.tp == 4);
  CHECK(Warns(two, "pp 1 and tp 4, which fills one node"));
  const PreparedRun six = run("dp: 6");
  CHECK(*six.config.strategy.tp == 1);
  CHECK(Warns(six, "pp 1; 2 of the 8 devices of one node stay idle"));
  CHECK(*run("dp: 16").config.strategy.tp == 1);
}

TEST_CASE("defaults: the batch is the nearest that the schedule runs",
          "[config]") {
  const auto run = [](const std::string& schedule,
                      const std::string& strategy) {
    return Prepared(absl::StrCat(kModel, kSystem, "schedule: {name: ", schedule,
                                 "}\nstrategy: {", strategy, "}\n"));
  };
  // 512 samples of 8192 tokens are 4 Mi; 85 a replica, in groups of 6 ranks.
  const PreparedRun groups =
      run("interleaved-1f1b", "pp: 6, vpp: 2, dp: 6, split: balanced");
  CHECK(*groups.config.strategy.microbatches == 84);
  CHECK(Warns(groups,
              "no batch is given: 84, the nearest to 85 that "
              "interleaved-1f1b runs, of a step of about 4 million tokens"));
  // Both directions have as many.
  const PreparedRun both = run("dualpipe", "pp: 2, dp: 24");
  CHECK(*both.config.strategy.microbatches % 2 == 0);
  CHECK(Warns(both, "the nearest to 21 that dualpipe runs"));
  // One that runs stays, and a given one is refused as before.
  CHECK(*run("1f1b", "pp: 6, dp: 6, split: balanced")
             .config.strategy.microbatches == 85);
  CHECK(absl::StrContains(
      Refusal(absl::StrCat(kModel, kSystem,
                           "schedule: {name: interleaved-1f1b}\nstrategy: {pp: "
                           "4, vpp: 2, microbatches: 7}\n")),
      "strategy.microbatches: 7"));
}

TEST_CASE("defaults: a batch of about four million tokens", "[config]") {
  // 512 samples of 8192 tokens are 4 Mi.
  const PreparedRun one = Prepared(absl::StrCat(kModel, kSystem));
  CHECK(*one.config.strategy.microbatches == 512 / 8);
  CHECK(Warns(one, "strategy.microbatches: no batch is given: 64"));
  const PreparedRun wide =
      Prepared(absl::StrCat(kModel, "system: {preset: dgx-h100, nodes: 3}\n",
                            "strategy: {microbatch_size: 2}\n"));
  // 504 samples are the most that 24 devices divide.
  CHECK(*wide.config.strategy.microbatches == 504 / 24 / 2);
  CHECK(!Warns(
      Prepared(absl::StrCat(kModel, kSystem, "strategy: {global_batch: 64}\n")),
      "no batch"));
  // A framework's file says its batch, a framework alone does not.
  CHECK(Warns(Prepared(absl::StrCat(kModel, kSystem,
                                    "strategy: {framework: megatron}\n")),
              "no batch is given: 64"));
}

TEST_CASE("defaults: without a model and times a pass is one unit",
          "[config]") {
  const PreparedRun run = Prepared(testing::kBase);
  CHECK(run.costs.in_units);
  CHECK(Warns(run, "no pass times are given"));
  CHECK(Warns(run, "1 unit each"));
  CHECK(
      !Prepared(absl::StrCat(testing::kBase, testing::kTimes)).costs.in_units);
}

TEST_CASE("defaults: seconds beside units are refused", "[config]") {
  CHECK(Prepared(absl::StrCat(testing::kBase, "costs: {p2p: 0}\n"))
            .costs.in_units);
  for (const auto& [section, field] :
       {std::pair("costs: {p2p: 1ms}\n", "costs.p2p"),
        std::pair("costs: {optimizer_time: 1ms}\n", "costs.optimizer_time"),
        std::pair("costs: {uniform: {recompute: 1ms}}\n",
                  "costs.uniform.recompute"),
        std::pair("costs: {price_per_device_hour: 2}\n",
                  "costs.price_per_device_hour"),
        std::pair("reliability: {mtbf_per_device: 1000h}\n",
                  "reliability.mtbf_per_device"),
        std::pair("system: {preset: dgx-h100}\ncosts: {hop_bytes: 1MB}\n",
                  "system.preset")}) {
    const std::string message = Refusal(absl::StrCat(testing::kBase, section));
    INFO(message);
    CHECK(absl::StrContains(message, field));
    CHECK(absl::StrContains(message, "one unit each"));
    CHECK(absl::StrContains(message, "--forward"));
  }
}

TEST_CASE("defaults: a model that nothing times is refused", "[config]") {
  const std::string sizes = "strategy: {pp: 4, microbatches: 8}\n";
  const std::string message = Refusal(absl::StrCat(kModel, sizes));
  INFO(message);
  for (const char* way : {"--system", "--analytic", "--profile", "--forward"}) {
    CHECK(absl::StrContains(message, way));
  }
  CHECK(absl::StrContains(
      Refusal(absl::StrCat(kModel, sizes,
                           "system: {preset: dgx-h100, device_name: X1}\n")),
      "device 'X1' of the system is not known"));
  CHECK(absl::StrContains(
      Refusal(absl::StrCat(kModel, sizes,
                           "system: {shape: node, devices_per_node: 4, nvlink: "
                           "{bandwidth: 25GBps, latency: 1us}}\n")),
      "the system names no device"));
}

}  // namespace
}  // namespace pipewright::prepare_defaults_test
