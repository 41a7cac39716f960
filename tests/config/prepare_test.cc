#include "sim/config/prepare.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/config/flags.h"

namespace pipewright {
namespace {

absl::StatusOr<PreparedRun> PrepareText(const std::string& yaml) {
  const absl::StatusOr<RunConfig> config = ReadConfig(yaml, "run.yaml");
  if (!config.ok()) return config.status();
  return Prepare(*config);
}

PreparedRun Prepared(const std::string& yaml) {
  const absl::StatusOr<PreparedRun> run = PrepareText(yaml);
  INFO(run.status());
  REQUIRE(run.ok());
  return *run;
}

constexpr char kBase[] =
    "schedule: {name: 1f1b}\nstrategy: {pp: 4, microbatches: 8}\n";
constexpr char kTimes[] =
    "costs: {uniform: {forward: 3s, backward_input: 5s, "
    "backward_weight: 7s}, p2p: 1s}\n";

bool Warns(const PreparedRun& run, absl::string_view part) {
  for (const std::string& warning : run.warnings) {
    if (absl::StrContains(warning, part)) return true;
  }
  return false;
}

TEST_CASE("prepare: defaults are said aloud", "[config]") {
  const PreparedRun run = Prepared(kBase);
  CHECK(run.engine == "simgrid");
  CHECK(run.network_name == "free");
  CHECK(run.schedule->pp() == 4);
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
  CHECK(run.network_name == "hop 1 s");
}

TEST_CASE("prepare: vpp defaults to the schedule's", "[config]") {
  const PreparedRun run = Prepared(
      "schedule: {name: interleaved-1f1b}\n"
      "strategy: {pp: 2, microbatches: 4}\n");
  CHECK(run.schedule->vpp() == 2);
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
  const std::string path = "prepare_slices_test.pws";
  std::ofstream(path) << "pipewright-schedule 1\n"
                         "pp 1 vpp 1 microbatches 1 slices 2 replicas 1 "
                         "placement plain\n"
                         "0: F0s0 F0s1 BW0s1 BW0s0\n";
  const std::string file = absl::StrCat("schedule: {file: ", path, "}\n");
  CHECK(Prepared(file + "model: {preset: gpt-tiny}\n").lower.hop_bytes ==
        128 * 256 * 2 / 2);
  // Bytes that are given are those of one hop.
  CHECK(Prepared(file + "costs: {hop_bytes: 1KB}\n").lower.hop_bytes == 1000);
  std::remove(path.c_str());
}

TEST_CASE("prepare: two directions share weights, so gradients are needed",
          "[config]") {
  const std::string path = "prepare_directions_test.pws";
  std::ofstream(path) << "pipewright-schedule 1\n"
                         "pp 1 vpp 1 microbatches 2 slices 1 replicas 2 "
                         "placement plain\n"
                         "0: aF0 aBW0 bF0 bBW0\n";
  const std::string file = absl::StrCat("schedule: {file: ", path, "}\n");
  const PreparedRun none = Prepared(file + "strategy: {data_parallel: none}\n");
  CHECK(Warns(none,
              "two replicas hold the same weights, but gradients are not "
              "synchronised"));
  const PreparedRun known = Prepared(file + "costs: {gradient_bytes: 8GB}\n");
  CHECK(known.lower.data_parallel == DataParallel::kDdp);
  CHECK(known.lower.gradient_bytes == std::vector<double>{8e9});
  CHECK(!Warns(known, "not synchronised"));
  CHECK(!Warns(known, "no effect"));
  std::remove(path.c_str());
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
  CHECK(Prepared(base + "4}\n").limit->ok());
  const PreparedRun over = Prepared(base + "2}\n");
  CHECK(over.limit->code() == absl::StatusCode::kResourceExhausted);
  CHECK(
      absl::StrContains(over.limit->message(),
                        "run.yaml:2: strategy.max_activations: 2 is exceeded"));
  CHECK(absl::StrContains(over.limit->message(), "holds 4"));
  CHECK(!Prepared(kBase).limit.has_value());
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
    return run.cluster->num_devices() / 8;
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
  CHECK(run.mapping->DeviceOf(0, 0) == 1);
  const std::vector<LinkId> links = run.cluster->Route(0, 1);
  CHECK(run.cluster->BandwidthOf(links) == 1e9);
  CHECK(run.cluster->LatencyOf(links) == 0);
  CHECK(run.network_name == "dgx-h100, 1 node (native)");
}

TEST_CASE("prepare: a schedule file brings its sizes", "[config]") {
  const std::string path = "prepare_test.pws";
  std::ofstream(path) << "pipewright-schedule 1\n"
                         "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 "
                         "placement plain\n"
                         "0: F0 F1 BW0 BW1\n1: F0 BW0 F1 BW1\n";
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

  std::ofstream(path) << "pipewright-schedule 1\n"
                         "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 "
                         "placement plain\n"
                         "0: F0 BW0 BW1\n1: F0 BW0 F1 BW1\n";
  CHECK(PrepareText(file).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  std::remove(path.c_str());
}

struct BadRun {
  std::string yaml;
  absl::StatusCode code;
  std::vector<const char*> parts;
};

TEST_CASE("prepare: what does not fit together is refused by field",
          "[config]") {
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  const std::string system = "system: {preset: dgx-h100}\n";
  const std::string model = "model: {preset: gpt-tiny}\n";
  const auto strategy = [](const std::string& fields) {
    return absl::StrCat("schedule: {name: 1f1b}\nstrategy: {", fields, "}\n");
  };
  const std::vector<BadRun> table = {
      {"", kBad, {"schedule.name: missing"}},
      {"schedule: {name: 1f1b}", kBad, {"strategy.pp: missing"}},
      {strategy("pp: 4"), kBad, {"strategy.microbatches: missing"}},
      {"schedule: {name: 1f2b}",
       kBad,
       {"run.yaml:1: schedule.name: unknown schedule '1f2b'; did you mean "
        "'1f1b'?"}},
      {"schedule: {name: 1f1b, file: x.pws}", kBad, {"allowed: one of them"}},
      {"schedule: {file: no-such-file.pws}",
       absl::StatusCode::kNotFound,
       {"schedule.file", "no-such-file.pws"}},
      {absl::StrCat(kBase, "engine: simgrit"),
       kBad,
       {"run.yaml:3: engine: unknown engine 'simgrit'"}},
      {absl::StrCat(kBase, "network: fluid"),
       kBad,
       {"network: fluid", "not available in this version"}},
      {absl::StrCat(kBase, "costs: {uniform: {forward: 1s}}"),
       kBad,
       {"costs.uniform.backward_input, costs.uniform.backward_weight: "
        "missing"}},
      {absl::StrCat(kBase,
                    "costs: {uniform: {forward: 1s}, per_stage: "
                    "{forward: 1s, backward_input: 1s, "
                    "backward_weight: 1s}}"),
       kBad,
       {"costs.per_stage.forward: given together"}},
      {absl::StrCat(kBase,
                    "costs: {per_stage: {forward: [1s, 2s], "
                    "backward_input: 1s, backward_weight: 1s}}"),
       kBad,
       {"run.yaml:3: costs.per_stage.forward: a list of 2", "= 4"}},
      {absl::StrCat(kBase,
                    "costs: {uniform: {forward: 0, backward_input: 0, "
                    "backward_weight: 0}}"),
       kBad,
       {"costs: 0 s of work"}},
      {absl::StrCat(kBase, "costs: {microbatch_factor: [1, 2]}"),
       kBad,
       {"costs.microbatch_factor: a list of 2", "8"}},
      {absl::StrCat(kBase, system, kTimes),
       kBad,
       {"run.yaml:4: costs.p2p", "together with a system"}},
      {absl::StrCat(kBase, system), kBad, {"costs.hop_bytes: missing"}},
      {absl::StrCat(kBase, "system: {nodes: 2}"),
       kBad,
       {"system.nodes", "no system"}},
      {absl::StrCat(kBase, "system: {preset: dgx-h10}"),
       kBad,
       {"system.preset", "did you mean 'dgx-h100'?"}},
      {absl::StrCat(kBase, "system: {shape: nod}"),
       kBad,
       {"did you mean 'node'?"}},
      {absl::StrCat(strategy("pp: 8, dp: 3, microbatches: 8"), model,
                    "system: {preset: dgx-h100, nodes: 2}"),
       kBad,
       {"system.nodes: 2", "8 * 3 = 24", "2 * 8 = 16", "3 or more"}},
      {absl::StrCat(strategy("pp: 8, microbatches: 8, mapping: dp-tp"), model,
                    system),
       kBad,
       {"strategy.mapping", "dp-tp"}},
      {absl::StrCat(strategy("pp: 2, microbatches: 8, mapping: [0, x]"), model,
                    system),
       kBad,
       {"strategy.mapping: x"}},
      {absl::StrCat(strategy("pp: 2, microbatches: 8, mapping: [0, 0]"), model,
                    system),
       kBad,
       {"strategy.mapping", "each device once"}},
      {absl::StrCat(strategy("pp: 4, microbatches: 8, waiting: rendezvous"),
                    "costs: {p2p: 1ms}"),
       kBad,
       {"strategy.waiting: rendezvous", "holds nobody"}},
      {absl::StrCat(strategy("pp: 5, microbatches: 8"), model),
       kBad,
       {"strategy.pp: pp * vpp = 5 * 1 = 5", "the nearest pp with vpp = 1",
        "4, 8"}},
      {absl::StrCat(strategy("pp: 32, microbatches: 64"), model),
       kBad,
       {"strategy.pp", ": 16;"}},
      {absl::StrCat(kBase, "model: {layers: 16}"),
       kBad,
       {"model.hidden: missing"}},
      {absl::StrCat(kBase, "model: {preset: gpt-tiny, heads: 5}"),
       kBad,
       {"model.heads: 5"}},
      {strategy("pp: 4, microbatches: 8, dp: 2, data_parallel: ddp"),
       kBad,
       {"costs.gradient_bytes: missing"}},
      {strategy("pp: 64, microbatches: 2000000000"),
       kBad,
       {"run.yaml:2: strategy.microbatches: 2000000000", "2^31 passes"}},
      {"schedule: {name: 1f1b}\nstrategy: {pp: 65536, vpp: 2048, "
       "microbatches: 1}",
       kBad,
       {"strategy.pp", "stages"}},
      {"schedule: {name: 1f1b}\nstrategy: {pp: 65537, microbatches: 1}",
       kBad,
       {"strategy.pp: 65537", "from 1 to 65536"}},
      {"schedule: {name: 1f1b, params: {color: red}}\n"
       "strategy: {pp: 4, microbatches: 8}",
       kBad,
       {"run.yaml:1: schedule.params.color: red"}},
      {"schedule: {name: zb-h1}\nstrategy: {pp: 8, microbatches: 2}",
       kBad,
       {"run.yaml:2: strategy.microbatches: 2"}},
  };
  for (const BadRun& bad : table) {
    const absl::Status status = PrepareText(bad.yaml).status();
    INFO(bad.yaml << "\n" << status);
    CHECK(status.code() == bad.code);
    for (const char* part : bad.parts) {
      INFO(part);
      CHECK(absl::StrContains(status.message(), part));
    }
  }
}

TEST_CASE("prepare: every flag stands for a path of the schema", "[config]") {
  const std::vector<std::string> paths = ConfigPaths();
  const auto known = [&](const std::string& path) {
    return std::find(paths.begin(), paths.end(), path) != paths.end();
  };
  for (const ConfigFlag& flag : ConfigFlags()) {
    INFO(flag.flag);
    CHECK(known(flag.path));
    CHECK((flag.other_path.empty() || known(flag.other_path)));
  }
}

TEST_CASE("prepare: a flag's value decides what it stands for", "[config]") {
  const auto path_of = [](const std::string& name, const std::string& value) {
    for (const ConfigFlag& flag : ConfigFlags()) {
      if (flag.flag != name) continue;
      const auto edit = EditOfFlag(flag, value);
      return edit.ok() ? edit->path : std::string(edit.status().message());
    }
    return std::string("no such flag");
  };
  CHECK(path_of("--schedule", "1f1b") == "schedule.name");
  CHECK(path_of("--schedule", "my/1f1b") == "schedule.file");
  CHECK(path_of("--schedule", "x.pws") == "schedule.file");
  CHECK(path_of("--schedule", "x.json") == "schedule.file");
  CHECK(path_of("--system", "dgx-h100") == "system.preset");
  CHECK(path_of("--system", "./dgx") == "system.file");
  CHECK(path_of("--forward", "1ms") == "costs.uniform.forward");
  CHECK(path_of("--forward", "1ms,2ms") == "costs.per_stage.forward");
  CHECK(path_of("--param", "a=b=c") == "schedule.params.a");
  CHECK(absl::StrContains(path_of("--param", "a"), "KEY=VALUE"));
  CHECK(absl::StrContains(path_of("--param", "a.b=1"), "without dots"));
  // A registered name wins over a file of that name.
  std::ofstream("gpipe") << "x";
  std::ofstream("no-schedule-of-ours") << "x";
  CHECK(path_of("--schedule", "gpipe") == "schedule.name");
  CHECK(path_of("--schedule", "no-schedule-of-ours") == "schedule.file");
  std::remove("gpipe");
  std::remove("no-schedule-of-ours");
}

}  // namespace
}  // namespace pipewright
