#include "sim/config/prepare.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/prepare.h"
#include "tests/support/run_binary.h"

namespace pipewright::prepare_test {
namespace {

using testing::kBase;
using testing::kTimes;
using testing::Prepared;
using testing::PrepareText;
using testing::Warns;

TEST_CASE("prepare: defaults are said aloud", "[config]") {
  const PreparedRun run = Prepared(kBase);
  CHECK(run.engine == "simgrid");
  CHECK(run.network.name == "free");
  CHECK(run.schedule.lowered->pp() == 4);
  CHECK(run.lower.costs.stages[3].backward_weight_s == 1);
  CHECK(run.config.strategy.vpp == 1);
  CHECK(run.config.strategy.dp == 1);
  CHECK(run.warnings.size() == 2);
  CHECK(Warns(run, "no pass times"));
  CHECK(Warns(run, "hops between ranks cost nothing"));
}

TEST_CASE("prepare: a chunk takes its part of a uniform time", "[config]") {
  const PreparedRun run = Prepared(
      absl::StrCat("schedule: {name: interleaved-1f1b}\n",
                   "strategy: {pp: 2, microbatches: 4, vpp: 3}\n", kTimes));
  CHECK(run.warnings.empty());
  REQUIRE(run.lower.costs.stages.size() == 6);
  for (const StageCosts& stage : run.lower.costs.stages) {
    CHECK(stage.forward_s == Approx(1));
    CHECK(stage.backward_input_s == Approx(5.0 / 3));
    CHECK(stage.recompute_s == Approx(1));
  }
  CHECK(run.lower.network.hop_s == 1);
  CHECK(run.network.name == "hop 1 s");
}

TEST_CASE("prepare: vpp defaults to the schedule's", "[config]") {
  const PreparedRun run = Prepared(
      "schedule: {name: interleaved-1f1b}\n"
      "strategy: {pp: 2, microbatches: 4}\n");
  CHECK(run.schedule.lowered->vpp() == 2);
  CHECK(run.config.strategy.vpp == 2);
}

TEST_CASE("prepare: per-stage times are those of the stage itself",
          "[config]") {
  const PreparedRun run = Prepared(
      "schedule: {name: interleaved-1f1b}\n"
      "strategy: {pp: 2, microbatches: 4, vpp: 2}\n"
      "costs:\n"
      "  per_stage: {forward_s: [1, 2, 3, 4]}\n"
      "  uniform: {backward_input: 5s, backward_weight: 7s}\n"
      "  microbatch_factor: [1, 2, 1, 0.5]\n"
      "  optimizer_time: 9s\n  p2p: 0\n");
  CHECK(run.lower.costs.stages[2].forward_s == 3);
  CHECK(run.lower.costs.stages[2].backward_input_s == 2.5);
  CHECK(run.lower.costs.microbatch_factor.size() == 4);
  CHECK(run.lower.costs.optimizer_s == 9);
}

TEST_CASE("prepare: slices cost what the list or the schedule says",
          "[config]") {
  const PreparedRun listed = Prepared(
      absl::StrCat("schedule: {name: seq1f1b}\n"
                   "strategy: {pp: 2, microbatches: 4, slices: 2}\n",
                   "costs: {uniform: {forward: 1s, backward_input: 1s, "
                   "backward_weight: 1s}, slice_factor: [0.5, 1.5]}\n"));
  CHECK(listed.lower.costs.slice_factor == std::vector<double>{0.5, 1.5});

  // gpt-tiny: a layer has 12 * 256^2 + 2 * 256 = 786944 parameters, so that
  // of 256 tokens 2 * 256 * 256 of 2 * 786944 + 2 * 256 * 256 are attention.
  const double attention = 131072.0 / (2 * 786944 + 131072);
  const PreparedRun equal = Prepared(absl::StrCat(
      "model: {preset: gpt-tiny}\n",
      "schedule: {name: seq1f1b, params: {balance: tokens}}\n"
      "strategy: {pp: 2, microbatches: 4, slices: 2, sequence: 256}\n",
      kTimes));
  const std::vector<double>& factors = equal.lower.costs.slice_factor;
  REQUIRE(factors.size() == 2);
  CHECK(factors[0] == Approx(1 - attention / 2));
  CHECK(factors[1] == Approx(1 + attention / 2));

  const PreparedRun balanced = Prepared(absl::StrCat(
      "model: {preset: gpt-tiny}\n",
      "schedule: {name: seq1f1b, params: {balance: flops}}\n"
      "strategy: {pp: 2, microbatches: 4, slices: 2, sequence: 256}\n",
      kTimes));
  for (const double factor : balanced.lower.costs.slice_factor) {
    CHECK(factor == Approx(1).margin(0.01));
  }

  // The schedule chooses their number.
  const PreparedRun chosen =
      Prepared(absl::StrCat("schedule: {name: terapipe, params: {pieces: 8}}\n"
                            "strategy: {pp: 4, microbatches: 2}\n",
                            kTimes));
  CHECK(chosen.schedule.lowered->slices == 8);
  CHECK(chosen.config.strategy.slices == 8);
  CHECK(chosen.lower.costs.slice_factor.size() == 8);
}

TEST_CASE("prepare: a hop carries what the model sends", "[config]") {
  const std::string base = absl::StrCat(
      "schedule: {name: 1f1b}\nmodel: {preset: gpt-tiny}\n", kTimes);
  const PreparedRun run = Prepared(absl::StrCat(
      base, "strategy: {pp: 4, microbatches: 8, microbatch_size: 3}\n"));
  CHECK(run.lower.hop_bytes == 3 * 128 * 256 * 2);
  const PreparedRun longer = Prepared(absl::StrCat(
      base, "strategy: {pp: 4, microbatches: 8, sequence: 512}\n"));
  CHECK(longer.lower.hop_bytes == 512 * 256 * 2);
}

TEST_CASE("prepare: a hop of a slice carries its part of the model's bytes",
          "[config]") {
  const testing::TemporaryFolder folder;
  const std::string path =
      folder.Write("schedule.pws",
                   "pipewright-schedule 1\n"
                   "pp 1 vpp 1 microbatches 1 slices 2 replicas 1 "
                   "placement plain\n"
                   "0: F0s0 F0s1 BW0s1 BW0s0\n");
  const std::string file = absl::StrCat("schedule: {file: ", path, "}\n");
  CHECK(Prepared(file + "model: {preset: gpt-tiny}\n").lower.hop_bytes ==
        128 * 256 * 2 / 2);
  // Bytes that are given are those of one hop.
  CHECK(Prepared(file + "costs: {hop_bytes: 1KB}\n").lower.hop_bytes == 1000);
}

TEST_CASE("prepare: two directions share weights, so gradients are needed",
          "[config]") {
  const testing::TemporaryFolder folder;
  const std::string path =
      folder.Write("schedule.pws",
                   "pipewright-schedule 1\n"
                   "pp 1 vpp 1 microbatches 2 slices 1 replicas 2 "
                   "placement plain\n"
                   "0: aF0 aBW0 bF0 bBW0\n");
  const std::string file = absl::StrCat("schedule: {file: ", path, "}\n");
  const PreparedRun none = Prepared(file + "strategy: {data_parallel: none}\n");
  CHECK(Warns(none,
              "two directions of the schedule hold the same weights, but "
              "gradients are not synchronised"));
  const PreparedRun known = Prepared(file + "costs: {gradient_bytes: 8GB}\n");
  CHECK(known.lower.data_parallel == DataParallel::kDdp);
  CHECK(known.lower.gradient_bytes == std::vector<double>{8e9});
  CHECK(!Warns(known, "not synchronised"));
  CHECK(!Warns(known, "no effect with dp 1"));
}

TEST_CASE("prepare: what zero1 takes parameters for is said", "[config]") {
  const PreparedRun run = Prepared(
      "schedule: {name: 1f1b}\n"
      "strategy: {pp: 2, microbatches: 4, dp: 2, data_parallel: zero1}\n"
      "costs: {gradient_bytes: 8GB, p2p: 0}\n");
  CHECK(run.lower.parameter_bytes[0] == 4e9);
  CHECK(Warns(run, "parameters taken as 0.5 of costs.gradient_bytes"));
}

TEST_CASE("prepare: a limit that is exceeded is told, not refused",
          "[config]") {
  const std::string base =
      "schedule: {name: 1f1b}\nstrategy: {pp: 4, microbatches: 8, "
      "max_activations: ";
  CHECK(Prepared(base + "4}\n").schedule.limit->ok());
  const PreparedRun over = Prepared(base + "2}\n");
  CHECK(over.limit().code() == absl::StatusCode::kResourceExhausted);
  CHECK(
      absl::StrContains(over.limit().message(),
                        "run.yaml:2: strategy.max_activations: 2 is exceeded"));
  CHECK(absl::StrContains(over.limit().message(), "holds 4"));
  CHECK(!Prepared(kBase).schedule.limit.has_value());
}

TEST_CASE("prepare: gradients follow from the model, stage by stage",
          "[config]") {
  const PreparedRun run = Prepared(
      absl::StrCat("schedule: {name: 1f1b}\nmodel: {preset: gpt-tiny}\n",
                   "strategy: {pp: 4, microbatches: 8, dp: 2}\n", kTimes));
  CHECK(run.lower.data_parallel == DataParallel::kDdp);
  CHECK(run.lower.replicas == 2);
  const std::vector<double>& bytes = run.lower.gradient_bytes;
  REQUIRE(bytes.size() == 4);
  // Four layers a stage; a layer of gpt-tiny is 12 * 256^2 + 2 * 256.
  const double layers = 4.0 * (12 * 256 * 256 + 2 * 256);
  CHECK(bytes[1] == 4 * layers);
  CHECK(bytes[0] == 4 * (layers + 512 * 256));
  CHECK(bytes[3] == 4 * (layers + 512 * 256 + 256));
  CHECK(run.lower.parameter_bytes[1] == 2 * layers);
  CHECK(Warns(run, "gradient synchronisation cost nothing"));

  const PreparedRun given = Prepared(
      absl::StrCat("schedule: {name: interleaved-1f1b}\n",
                   "strategy: {pp: 2, microbatches: 4, vpp: 2, dp: 2}\n",
                   "costs: {gradient_bytes: 8GB, p2p: 0}\n"));
  CHECK(given.lower.gradient_bytes == std::vector<double>(4, 4e9));

  const PreparedRun none = Prepared(
      absl::StrCat("schedule: {name: 1f1b}\n",
                   "strategy: {pp: 4, microbatches: 8, dp: 2}\n", kTimes));
  CHECK(none.lower.data_parallel == DataParallel::kNone);
  CHECK(Warns(none, "gradients are not synchronised"));
}

TEST_CASE("prepare: nodes default to the smallest number that is enough",
          "[config]") {
  const auto nodes = [](const std::string& strategy) {
    const PreparedRun run = Prepared(absl::StrCat(
        "schedule: {name: 1f1b}\nmodel: {preset: gpt-tiny}\n",
        "system: {preset: dgx-h100}\nstrategy: {", strategy, "}\n"));
    return run.network.links.cluster->num_devices() / 8;
  };
  CHECK(nodes("pp: 8, microbatches: 8") == 1);
  CHECK(nodes("pp: 8, dp: 2, microbatches: 8") == 2);
  CHECK(nodes("pp: 4, dp: 3, microbatches: 8") == 2);
  CHECK(nodes("pp: 2, microbatches: 8, mapping: [0, 23]") == 3);
}

TEST_CASE("prepare: fields lie on top of a system's own numbers", "[config]") {
  const PreparedRun run = Prepared(
      "schedule: {name: 1f1b}\n"
      "system: {preset: dgx-h100, nvlink: {bandwidth: 1GBps, latency: 0}}\n"
      "strategy: {pp: 2, microbatches: 8, mapping: [1, 0]}\n"
      "costs: {hop_bytes: 1KB}\n");
  CHECK(run.network.links.mapping->DeviceOf(0, 0) == 1);
  const std::vector<LinkId> links = run.network.links.cluster->Route(0, 1);
  CHECK(run.network.links.cluster->BandwidthOf(links) == 1e9);
  CHECK(run.network.links.cluster->LatencyOf(links) == 0);
  CHECK(run.network.name == "dgx-h100, 1 node (simgrid)");
  CHECK(Prepared("schedule: {name: 1f1b}\n"
                 "system: {preset: dgx-h100}\n"
                 "strategy: {pp: 2, microbatches: 8}\n"
                 "costs: {hop_bytes: 1KB}\n"
                 "engine: fluid\n")
            .network.name == "dgx-h100, 1 node (fluid)");
}

TEST_CASE("prepare: a file of slices says what they are taken to cost",
          "[config]") {
  const testing::TemporaryFolder folder;
  const std::string path =
      folder.Write("schedule.pws",
                   "pipewright-schedule 1\n"
                   "pp 1 vpp 1 microbatches 1 slices 2 replicas 1 "
                   "placement plain\n"
                   "0: F0s0 F0s1 BW0s1 BW0s0\n");
  const std::string file =
      absl::StrCat("schedule: {file: ", path, "}\n", kTimes);
  const std::string model =
      "model: {preset: gpt-tiny}\nstrategy: {sequence: 256}\n";
  const PreparedRun equal = Prepared(absl::StrCat(file, model));
  CHECK(equal.lower.costs.slice_factor.empty());
  // As "prepare: slices cost ..." has it: 1 -+ 0.0769 / 2.
  CHECK(Warns(equal,
              "schedule.file: its 2 slices are taken to cost the same; cut to "
              "equal lengths they would cost, with this model's causal "
              "attention, costs.slice_factor=[0.9616,1.038]"));
  CHECK(!Warns(Prepared(file), "slices are taken"));
  std::string given = file;
  given.insert(given.rfind('}'), ", slice_factor: [0.5, 1.5]");
  CHECK(!Warns(Prepared(absl::StrCat(given, model)), "slices are taken"));
}

TEST_CASE("prepare: a schedule file brings its sizes", "[config]") {
  const testing::TemporaryFolder folder;
  const std::string path =
      folder.Write("schedule.pws",
                   "pipewright-schedule 1\n"
                   "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 "
                   "placement plain\n"
                   "0: F0 F1 BW0 BW1\n1: F0 BW0 F1 BW1\n");
  const std::string file = absl::StrCat("schedule: {file: ", path, "}\n");
  const PreparedRun run = Prepared(file);
  CHECK(run.config.strategy.pp == 2);
  CHECK(run.config.strategy.microbatches == 2);
  Prepared(absl::StrCat(file, "strategy: {pp: 2, microbatches: 2}\n"));
  const absl::Status differs =
      PrepareText(absl::StrCat(file, "strategy: {pp: 4}\n")).status();
  CHECK(differs.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(differs.message(),
                          "run.yaml:2: strategy.pp: 4 is not allowed; "
                          "allowed: 2, which schedule file "));

  folder.Write("schedule.pws",
               "pipewright-schedule 1\n"
               "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 "
               "placement plain\n"
               "0: F0 BW0 BW1\n1: F0 BW0 F1 BW1\n");
  CHECK(PrepareText(file).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace pipewright::prepare_test
