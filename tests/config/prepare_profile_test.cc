// Runs whose pass times a calibration profile gives.
#include <unistd.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/file.h"
#include "sim/config/prepare.h"
#include "sim/cost/estimate_error.h"
#include "sim/engine/fast_engine.h"
#include "sim/profile/profile.h"
#include "sim/program/program.h"
#include "sim/report/report.h"
#include "sim/run/describe_run.h"
#include "sim/run/simulated_run.h"
#include "tests/support/json.h"
#include "tests/support/tiny_profile.h"

namespace pipewright::prepare_profile_test {
namespace {

using testing::Around;
using testing::TinyProfile;

// A file of its own for each test.
std::string Written(const Profile& profile, const std::string& name) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      absl::StrCat("pipewright-", name, "-", ::getpid(), ".txtpb");
  REQUIRE(WriteFile(path.string(), WriteProfile(profile)).ok());
  return path.string();
}

RunConfig Tiny(const std::string& path, const std::string& schedule = "1f1b") {
  RunConfig config;
  config.model.preset = "gpt-tiny";
  config.schedule.name = schedule;
  config.strategy.pp = 4;
  config.strategy.microbatches = 8;
  config.costs.profile = path;
  config.engine = "fast";
  return config;
}

bool Mentions(const std::vector<std::string>& warnings,
              absl::string_view words) {
  return absl::StrContains(absl::StrJoin(warnings, "\n"), words);
}

std::string ErrorOf(const RunConfig& config) {
  return std::string(Prepare(config).status().message());
}

}  // namespace

TEST_CASE("prepare: a CPU's profile has no context of CUDA in memory",
          "[config]") {
  const auto context = [](const RunConfig& config) {
    const absl::StatusOr<PreparedRun> run = Prepare(config);
    INFO(run.status());
    REQUIRE(run.ok());
    return run->memory->memory->ranks[0].context;
  };
  Profile profile = TinyProfile();
  RunConfig config = Tiny(Written(profile, "context"));
  CHECK(context(config) == 0);
  // Who says how much there is, is believed.
  config.strategy.memory_context_bytes = 12345;
  CHECK(context(config) == 12345);
  config.strategy.memory_context_bytes.reset();
  // A GPU's: of the profile, or of the system that the run is for.
  config.system.preset = "dgx-h100";
  CHECK(context(config) == int64_t{1} << 30);
  profile.sources[0].backend = "cuda";
  CHECK(context(Tiny(Written(profile, "context"))) == int64_t{1} << 30);
}

TEST_CASE("prepare: times of one device and links of another are warned of",
          "[config]") {
  Profile profile = TinyProfile();
  profile.sources[0].device = "NVIDIA H100 80GB HBM3";
  RunConfig config = Tiny(Written(profile, "device"));
  const auto warnings = [&] {
    const absl::StatusOr<PreparedRun> run = Prepare(config);
    INFO(run.status());
    REQUIRE(run.ok());
    return run->warnings;
  };
  CHECK(!Mentions(warnings(), "links and memory those of"));
  config.system.preset = "dgx-h100";
  CHECK(!Mentions(warnings(), "links and memory those of"));
  config.system.preset = "dgx-a100";
  CHECK(Mentions(warnings(),
                 "times are those of NVIDIA H100 80GB HBM3, links and memory "
                 "those of dgx-a100 (A100 SXM4 80GB)"));
  // A card is no module, and a module no card.
  profile.sources[0].device = "NVIDIA H100 NVL";
  config.costs.profile = Written(profile, "device");
  config.system.preset = "dgx-h100";
  CHECK(Mentions(warnings(), "NVIDIA H100 NVL"));
  config.system.device_name = "H100 NVL 94GB";
  CHECK(!Mentions(warnings(), "links and memory those of"));
  config.system.device_name.reset();
  profile.sources[0].device = "NVIDIA H100 80GB HBM3";
  // One source of another device is enough.
  config.system.preset = "dgx-h100";
  profile.sources.push_back(profile.sources[0]);
  profile.sources[1].device = "NVIDIA H200";
  config.costs.profile = Written(profile, "device");
  CHECK(Mentions(warnings(), "NVIDIA H100 80GB HBM3, NVIDIA H200"));
}

TEST_CASE("prepare: a profile gives passes, hops, optimizer and memory",
          "[config]") {
  const std::string path = Written(TinyProfile(), "gives");
  const absl::StatusOr<PreparedRun> run = Prepare(Tiny(path));
  INFO(run.status());
  REQUIRE(run.ok());
  const std::vector<StageCosts>& stages = run->lower.costs.stages;
  CHECK_FALSE(Mentions(run->warnings, "prediction of weights"));
  CHECK(stages[1].forward_s == Approx(4e-3));
  CHECK(stages[1].backward_full_s == Approx(8e-3));
  CHECK(stages[3].forward_s == Approx(4.2e-3));
  // 128 tokens of 256 elements in two bytes.
  CHECK(run->lower.network.hop_s == Approx(20e-6));
  CHECK(absl::StrContains(run->network.name, "(measured)"));
  CHECK(run->lower.costs.optimizer_s > 0);
  CHECK(run->lower.optimizer == OptimizerMode::kSynchronised);
  REQUIRE(run->memory);
  CHECK(run->memory->limit_bytes == Approx(static_cast<double>(1ull << 34)));
  CHECK(run->memory->limit_source == "toy");

  const absl::StatusOr<Program> program =
      Lower(run->schedule.lowered, run->lower);
  REQUIRE(program.ok());
  const absl::StatusOr<RunSummary> summary = RunFast(*program, {});
  REQUIRE(summary.ok());
  Report report = Summarize(*program, *summary, {});
  DescribeResults(*run, &report);
  const testing::Json json = testing::Json::parse(ReportToJson(report));
  CHECK(json["costs"]["source"] == "profile");
  CHECK(json["costs"]["profile"] == path);
  CHECK(json["costs"]["split_price"] == Approx(1.05));
  CHECK(json["costs"]["passes"].size() ==
        run->costs.profile->costs.times.size());
  CHECK(json["costs"]["passes"][0]["how"] == "measured");
  CHECK(json["costs"]["passes"][0]["noise"] == Approx(0.01));
  const std::string text = ReportToText(report);
  CHECK(absl::StrContains(text, "toy, cpu, 2026-01-02"));
  CHECK(absl::StrContains(text, "price of the split, (B + W) / BW: 1.050"));
  std::filesystem::remove(path);
}

TEST_CASE("prepare: a GPU's profile gives hops over NCCL", "[config]") {
  Profile profile = TinyProfile();
  profile.sources[0].backend = "cuda";
  // 65536 bytes lie in the middle of both, in logarithms.
  for (const int64_t bytes : {16384, 262144}) {
    profile.transfers.push_back(
        {.operation = "send_recv",
         .transport = "nccl",
         .ranks = 2,
         .bytes = bytes,
         .time = Around(static_cast<double>(bytes) / 16384)});
  }
  const std::string path = Written(profile, "nccl-hops");
  const absl::StatusOr<PreparedRun> run = Prepare(Tiny(path));
  INFO(run.status());
  REQUIRE(run.ok());
  CHECK(run->lower.network.hop_s == Approx(4e-6));
  CHECK(absl::StrContains(run->network.name, "(measured)"));
  std::filesystem::remove(path);
}

TEST_CASE("prepare: a schedule that predicts weights needs it measured",
          "[config]") {
  Profile profile = TinyProfile();
  const std::string path = Written(profile, "predicts");
  const absl::StatusOr<PreparedRun> without = Prepare(Tiny(path, "pipeoptim"));
  REQUIRE(without.ok());
  CHECK(without->lower.costs.prediction_s == 0);
  CHECK(Mentions(without->warnings, "no prediction of weights was measured"));
  profile.optimizers.push_back(
      {.where = "device", .parameters = 1000000, .time = Around(200)});
  profile.optimizers.back().prediction = true;
  REQUIRE(WriteFile(path, WriteProfile(profile)).ok());
  const absl::StatusOr<PreparedRun> with = Prepare(Tiny(path, "pipeoptim"));
  REQUIRE(with.ok());
  CHECK(with->lower.costs.prediction_s > 0);
  CHECK(with->lower.costs.prediction_s ==
        Approx(0.4 * with->lower.costs.optimizer_s));
  CHECK_FALSE(Mentions(with->warnings, "prediction of weights"));
  std::filesystem::remove(path);
}

TEST_CASE("prepare: a profile's passes stop where they were measured",
          "[config]") {
  const std::string path = Written(TinyProfile(), "stops");
  RunConfig config = Tiny(path);
  config.strategy.recompute = Recompute::kFull;
  config.strategy.recompute_stops_early = true;
  const auto run = Prepare(config);
  INFO(run.status());
  REQUIRE(run.ok());
  config.strategy.recompute_stops_early = false;
  const auto whole = Prepare(config);
  REQUIRE(whole.ok());
  for (size_t stage = 0; stage < whole->costs.passes.stages.size(); ++stage) {
    const StageCosts& one = run->costs.passes.stages[stage];
    const StageCosts& other = whole->costs.passes.stages[stage];
    CHECK(one.backward_input_s == other.backward_input_s);
    CHECK(one.recompute_s == other.recompute_s);
  }
  std::filesystem::remove(path);
}

TEST_CASE("prepare: R passes take measured times off the backward",
          "[config]") {
  const std::string path = Written(TinyProfile(), "again");
  RunConfig config = Tiny(path);
  config.strategy.recompute = Recompute::kFull;
  const absl::StatusOr<PreparedRun> run = Prepare(config);
  REQUIRE(run.ok());
  const StageCosts& stage = run->lower.costs.stages[1];
  CHECK(stage.recompute_s == Approx(4e-3));
  CHECK(stage.backward_full_s == Approx(12e-3));
  PassCosts costs = run->lower.costs;
  config.costs.recompute_s = 10e-3;
  const absl::StatusOr<PreparedRun> given = Prepare(config);
  REQUIRE(given.ok());
  CHECK(given->lower.costs.stages[1].backward_full_s == Approx(18e-3));
  std::filesystem::remove(path);
}

TEST_CASE("prepare: what a profile does not go with", "[config]") {
  const std::string path = Written(TinyProfile(), "rivals");
  RunConfig config = Tiny(path);
  config.costs.forward_s = 1;
  CHECK(absl::StrContains(ErrorOf(config),
                          "given together with costs.uniform.forward"));
  config = Tiny(path);
  config.costs.analytic = true;
  CHECK(
      absl::StrContains(ErrorOf(config), "given together with costs.analytic"));
  config = Tiny(path);
  config.model.preset.reset();
  CHECK(absl::StrContains(ErrorOf(config), "costs.profile: needs a model"));
  CHECK(
      absl::StrContains(ErrorOf(Tiny("/nowhere/p.txtpb")), "/nowhere/p.txtpb"));
  CHECK(absl::StrContains(ErrorOf(Tiny("no-such")), "unknown profile"));
  config = Tiny(path);
  config.strategy.sequence = 256;
  const absl::StatusOr<PreparedRun> longer = Prepare(config);
  REQUIRE(longer.ok());
  CHECK(absl::StrContains(absl::StrJoin(longer->warnings, "\n"),
                          "lies outside of the measured shapes"));
  std::filesystem::remove(path);
}

TEST_CASE("prepare: a schedule that splits needs a profile that did",
          "[config]") {
  Profile profile = TinyProfile();
  std::erase_if(profile.passes, [](const PassEntry& entry) {
    return entry.pass == ProfilePass::kBackwardInput ||
           entry.pass == ProfilePass::kBackwardWeight ||
           entry.part != ProfilePart::kLayer;
  });
  profile.sources[0].kind = "kineto";
  const std::string path = Written(profile, "whole");
  CHECK(Prepare(Tiny(path)).ok());
  CHECK(absl::StrContains(ErrorOf(Tiny(path, "zb-h1")),
                          "schedule zb-h1 splits the backward"));
  std::filesystem::remove(path);
}

TEST_CASE("prepare: a step of measured times has an interval", "[config]") {
  Profile profile = TinyProfile();
  profile.sources[0].warnings = {
      "the machine was busy", "one", "two", "three", "four", "five", "six"};
  const std::string path = Written(profile, "interval");
  const auto predict = [](const PreparedRun& run) {
    const Program program = Lower(run.schedule.lowered, run.lower).value();
    const double step_s = RunFast(program, {})->iteration_s();
    return std::make_pair(step_s, PredictStepOf(run, program, step_s).value());
  };
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      RunConfig config = Tiny(path, schedule);
      config.strategy.recompute = recompute;
      const PreparedRun run = Prepare(config).value();
      const auto [step_s, interval] = predict(run);
      REQUIRE(interval);
      INFO(schedule << " " << step_s << ": " << interval->low_s << " to "
                    << interval->high_s);
      // Entries say 1 %; of those that share a cause it stays 1 %.
      CHECK(interval->low_s < step_s);
      CHECK(interval->high_s > 1.005 * step_s);
      CHECK(interval->high_s < 1.04 * step_s);
      // What the profile has warned of comes first, and not all of it.
      CHECK(Mentions(run.warnings,
                     absl::StrCat("profile ", path, ": the machine was busy")));
      CHECK(
          Mentions(run.warnings, "2 more warnings (pipewright calibrate show"));
      CHECK_FALSE(Mentions(run.warnings, "has no interval"));
    }
  }
  // Given and unknown errors: none, and why.
  RunConfig given = Tiny(path);
  given.costs.profile.reset();
  given.costs.forward_s = given.costs.backward_input_s =
      given.costs.backward_weight_s = 0.01;
  CHECK_FALSE(predict(Prepare(given).value()).second);
  profile.passes[0].time.prediction_low_s = 0;
  profile.passes[0].time.prediction_high_s = 0;
  REQUIRE(WriteFile(path, WriteProfile(profile)).ok());
  const PreparedRun unknown = Prepare(Tiny(path)).value();
  CHECK_FALSE(predict(unknown).second);
  CHECK(Mentions(unknown.warnings,
                 "layer F: no drift was measured; a step has no interval"));
  std::filesystem::remove(path);
}

TEST_CASE("prepare: an estimated step has the interval of its kernels",
          "[config]") {
  RunConfig config;
  config.model.preset = "llama3-8b";
  config.schedule.name = "1f1b";
  config.strategy.pp = 4;
  config.strategy.microbatches = 8;
  config.engine = "fast";
  config.costs.analytic = true;
  const auto interval_of = [&] {
    const PreparedRun run = Prepare(config).value();
    const Program program = Lower(run.schedule.lowered, run.lower).value();
    const PreparedModel& model = *run.prepared_model;
    const RatioInterval error = EstimateError(
        model.spec, model.training, *run.costs.analytic, model.layout);
    const auto interval = PredictStepOf(run, program, 2).value();
    REQUIRE(interval.has_value());
    CHECK(interval->low_s == Approx(2 * error.low));
    CHECK(interval->high_s == Approx(2 * error.high));
    CHECK(interval->low_s < 2);
    CHECK(interval->high_s > 2);
    return *interval;
  };
  for (const char* device : {"a100-80gb", "h100", "b200"}) {
    INFO(device);
    config.costs.analytic_device = device;
    config.costs.analytic_clock = ClockRate::kSustained;
    const auto lasting = interval_of();
    // Without tables there is one interval, whatever the clock.
    if (std::string(device) == "a100-80gb") continue;
    // How far the clock falls is uncertain too.
    config.costs.analytic_clock = ClockRate::kBurst;
    const auto burst = interval_of();
    CHECK(burst.high_s < lasting.high_s);
    // Without measured products the efficiency curves are less sure.
    config.costs.analytic_clock.reset();
    config.costs.analytic_silicon = "none";
    CHECK(interval_of().high_s > burst.high_s);
    config.costs.analytic_silicon.reset();
  }
}

TEST_CASE("prepare: jitter is drawn from the profile, or given", "[config]") {
  const std::string path = Written(TinyProfile(), "jitter");
  RunConfig config = Tiny(path);
  config.costs.jitter = "profile";
  config.costs.seed = 7;
  const absl::StatusOr<PreparedRun> drawn = Prepare(config);
  REQUIRE(drawn.ok());
  REQUIRE(drawn->lower.jitter != nullptr);
  CHECK(drawn->lower.jitter->seed == 7);
  CHECK(QuantileAt(drawn->lower.jitter->passes[1][0], 0.9) == Approx(1.02));
  config.costs.jitter = "3%";
  CHECK(Prepare(config)->lower.jitter->sigma == Approx(0.03));
  config.costs.jitter = "uniform:5%";
  const absl::StatusOr<PreparedRun> even = Prepare(config);
  REQUIRE(even.ok());
  const Jitter& jitter = *even->lower.jitter;
  CHECK(jitter.sigma == 0);
  // Of an even law between 0.95 and 1.05, 4000 draws: the mean has a deviation
  // of 0.0005, the variance is 0.1^2 / 12.
  double sum = 0;
  double squares = 0;
  for (int microbatch = 0; microbatch < 4000; ++microbatch) {
    const double factor =
        jitter.OfPass(0, 0, 0, 1, Pass(PassKind::kForward, microbatch));
    CHECK(std::abs(factor - 1) < 0.05);
    sum += factor;
    squares += (factor - 1) * (factor - 1);
  }
  CHECK(sum / 4000 == Approx(1).margin(0.002));
  CHECK(squares / 4000 == Approx(0.01 / 12).epsilon(0.05));
  CHECK(std::abs(jitter.OfOptimizer(0, 0, 0) - 1) < 0.05);
  config.costs.jitter = "none";
  const absl::StatusOr<PreparedRun> none = Prepare(config);
  CHECK(none->lower.jitter == nullptr);
  CHECK(absl::StrContains(absl::StrJoin(none->warnings, "\n"),
                          "costs.seed has no effect"));
  for (const char* wrong : {"0%", "-1%", "x%", "3", "nan%", "200%", "uniform:",
                            "uniform:5", "uniform:0%", "uniform:101%"}) {
    config.costs.jitter = wrong;
    CHECK(absl::StrContains(ErrorOf(config), "costs.jitter: "));
  }
  std::filesystem::remove(path);
}

TEST_CASE("config: a profile puts other pass times aside", "[config]") {
  const absl::StatusOr<RunConfig> config = ReadConfig(
      "costs: {uniform: {forward: 1s, backward_input: 1s, backward_weight: "
      "1s}, analytic: {device: h100}}",
      "a.yaml", {{{"costs.profile", "p.txtpb", "--profile"}}});
  REQUIRE(config.ok());
  CHECK(config->costs.profile == "p.txtpb");
  CHECK_FALSE(config->costs.forward_s.has_value());
  CHECK_FALSE(config->costs.analytic);
  // A path in a file is relative to that file, a name is not.
  CHECK(ReadConfig("costs: {profile: p.txtpb}", "some/a.yaml")->costs.profile ==
        "some/p.txtpb");
  CHECK(ReadConfig("costs: {profile: h100}", "some/a.yaml")->costs.profile ==
        "h100");
  CHECK(ReadConfig("costs: {interference: off}", "a.yaml").ok());
}

}  // namespace pipewright::prepare_profile_test
