// One run from its configuration to its report, and many of them at once.
#include "sim/run/simulated_run.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"
#include "tests/support/tiny_profile.h"

namespace pipewright::simulated_run_test {
namespace {

using testing::TemporaryFolder;

// 1f1b, pp 4, 8 microbatches, F 3 s, B 5 s, W 7 s, engine fast.
RunConfig Times() {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = "1f1b";
  config.strategy.pp = 4;
  config.strategy.microbatches = 8;
  config.costs.forward_s = 3;
  config.costs.backward_input_s = 5;
  config.costs.backward_weight_s = 7;
  return config;
}

RunConfig Tiny(const std::string& profile) {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = "1f1b";
  config.strategy.pp = 4;
  config.strategy.microbatches = 8;
  config.model.preset = "gpt-tiny";
  config.costs.profile = profile;
  return config;
}

SimulatedRun Simulated(const RunConfig& config,
                       const SimulateOptions& options = {}) {
  RunContext context;
  absl::StatusOr<SimulatedRun> run = Simulate(config, &context, options);
  INFO(run.status());
  REQUIRE(run.ok());
  return *std::move(run);
}

TEST_CASE("run: engine simgrid is the default of small runs", "[run]") {
  RunConfig config = Times();
  config.engine.reset();
  config.iterations = 1;
  const SimulatedRun small = Simulated(config);
  CHECK(small.report.engine == "simgrid");
  REQUIRE(small.report.activities.has_value());
  // F and BW of 8 microbatches on 4 ranks, and 3 hops each way.
  CHECK(small.report.activities->execs == 2 * 8 * 4);
  CHECK(small.report.activities->comms == 2 * 8 * 3);

  // F, BW and the sends of both, less those of the ends.
  config.strategy.microbatches = 100'000 / 14;
  const SimulatedRun most = Simulated(config);
  CHECK(most.report.engine == "simgrid");
  config.strategy.microbatches = 100'000 / 14 + 1;
  const SimulatedRun large = Simulated(config);
  CHECK(large.report.engine == "fluid");
  CHECK(!large.report.activities.has_value());
  REQUIRE(!large.warnings().empty());
  CHECK(
      absl::StrContains(large.warnings().back(), "--engine simgrid takes it"));
  config.engine = "simgrid";
  const SimulatedRun asked = Simulated(config);
  CHECK(asked.report.engine == "simgrid");
  CHECK(asked.report.iteration_s ==
        Approx(large.report.iteration_s).epsilon(1e-9));
}

TEST_CASE("run: older words for engines say what they mean now", "[run]") {
  for (const auto& [network, engine] :
       {std::pair("fluid", "fluid"), std::pair("native", "simgrid")}) {
    for (const bool named : {false, true}) {
      RunConfig config = Times();
      config.engine.reset();
      if (named) config.engine = "simgrid";
      config.network = network;
      const SimulatedRun run = Simulated(config);
      CHECK(run.report.engine == engine);
      REQUIRE(!run.warnings().empty());
      CHECK(run.warnings().front() ==
            absl::StrCat("network: ", network, " is an older word for engine: ",
                         engine, ", which runs"));
    }
    RunConfig config = Times();
    config.network = network;
    const SimulatedRun run = Simulated(config);
    CHECK(run.report.engine == "fast");
    CHECK(absl::StrContains(run.warnings().front(),
                            "network has no effect with engine fast"));
  }
}

TEST_CASE("run: the result is that of hand arithmetic", "[run]") {
  RunConfig config = Times();
  config.strategy.max_activations = 3;
  const SimulatedRun run = Simulated(config);
  // (m + p - 1)(F + B + W), and m(F + B + W) of it is work.
  CHECK(run.report.span_s.global == Approx(11 * 15));
  CHECK(run.report.busy_s == Approx(8 * 15));
  // min(p - d, m) on rank d.
  CHECK(run.report.peak_activations == std::vector<double>{4, 3, 2, 1});
  CHECK(run.report.fits == false);
  CHECK(run.prepared.limit().code() == absl::StatusCode::kResourceExhausted);
  CHECK(run.report.engine == "fast");
  CHECK(run.report.network == "free");
  CHECK(run.report.warnings == run.warnings());
  CHECK(run.schedule().microbatches == 8);
  CHECK(run.program->num_passes() == run.report.ops);
  CHECK_FALSE(run.memory());
}

TEST_CASE("run: what a caller does not ask for is not there", "[run]") {
  const TemporaryFolder folder;
  const RunConfig config =
      Tiny(folder.Write("p.txtpb", WriteProfile(testing::TinyProfile())));
  CHECK_FALSE(Simulated(config).report.interval);
  const SimulatedRun asked = Simulated(config, {.interval = true});
  REQUIRE(asked.report.interval);
  CHECK(asked.report.interval->low_s < asked.report.iteration_s);
  CHECK(asked.report.interval->high_s > asked.report.iteration_s);
  REQUIRE(asked.memory());
}

TEST_CASE("run: advice is asked for where the memory does not suffice",
          "[run]") {
  int asked = 0;
  SimulateOptions options;
  options.advise = [&asked](const PreparedRun& run) {
    ++asked;
    CHECK(run.memory);
    return std::vector<MemoryChange>{{.change = "less"}};
  };
  RunConfig config = Times();
  Simulated(config, options);
  config.model.preset = "gpt-tiny";
  config.system.memory_bytes = 1e12;
  CHECK(Simulated(config, options).report.fits == true);
  CHECK(asked == 0);
  config.system.memory_bytes = 1e6;
  const SimulatedRun run = Simulated(config, options);
  CHECK(asked == 1);
  CHECK(run.report.fits == false);
  REQUIRE(run.memory()->changes.size() == 1);
  CHECK(run.memory()->changes[0].change == "less");
}

int calls = 0;

absl::StatusOr<RunSummary> RunAndCount(const Program& program,
                                       const EngineOptions& options) {
  ++calls;
  return FindEngine("fast").value()->run(program, options);
}

TEST_CASE("run: a given engine runs, unless the program is not admitted",
          "[run]") {
  const EngineInfo engine = {"counting", "", &RunAndCount};
  calls = 0;
  FullTrace trace;
  SimulateOptions options = {.trace = &trace, .engine = &engine};
  CHECK(Simulated(Times(), options).report.engine == "counting");
  CHECK(calls == 1);
  CHECK(!trace.ops().empty());
  options.admit = [](const PreparedRun& run, const Program& program) {
    return absl::OutOfRangeError(
        absl::StrCat(run.engine, " ", program.num_passes()));
  };
  RunContext context;
  const absl::Status refused = Simulate(Times(), &context, options).status();
  CHECK(refused.code() == absl::StatusCode::kOutOfRange);
  CHECK(refused.message() == "fast 64");
  CHECK(calls == 1);
}

TEST_CASE("run: a context reads a file once", "[run]") {
  const TemporaryFolder folder;
  const std::string profile =
      folder.Write("p.txtpb", WriteProfile(testing::TinyProfile()));
  const std::string system = folder.Write(
      "s.textproto",
      ReadFile(testing::SourcePath("topologies/dgx-h100.textproto")).value());
  const std::string schedule = folder.Write(
      "s.pws",
      "pipewright-schedule 1\npp 2 vpp 1 microbatches 1 slices 1 replicas 1 "
      "placement plain\n0: F0 BW0\n1: F0 BW0\n");
  RunConfig config = Tiny(profile);
  config.schedule.name.reset();
  config.schedule.file = schedule;
  config.strategy = {};
  config.system.file = system;
  RunContext context;
  const auto report = [&](RunContext* with) -> absl::StatusOr<std::string> {
    const absl::StatusOr<SimulatedRun> run = Simulate(config, with);
    if (!run.ok()) return run.status();
    return ReportToJson(run->report);
  };
  const absl::StatusOr<std::string> first = report(&context);
  INFO(first.status());
  REQUIRE(first.ok());
  for (const std::string& path : {profile, system, schedule}) {
    std::filesystem::remove(path);
    CHECK(report(&context) == first);
    RunContext fresh;
    CHECK_FALSE(report(&fresh).ok());
    folder.Write(std::filesystem::path(path).filename(), "nothing of use");
    CHECK(report(&context) == first);
    RunContext other;
    CHECK_FALSE(report(&other).ok());
  }
}

// Every schedule with given times, on a system with a model, and with a
// profile: what runs share is asked for by all of them.
std::vector<RunConfig> Many(const std::string& profile) {
  std::vector<RunConfig> configs;
  for (const ScheduleInfo* info : AllSchedules()) {
    RunConfig config = Times();
    config.schedule.name = info->name;
    config.costs.p2p_s = 1;
    configs.push_back(config);
    config = Times();
    config.schedule.name = info->name;
    config.costs = {};
    config.costs.analytic = true;
    config.model.preset = "llama3-8b";
    config.system.preset = "dgx-h100";
    config.strategy.dp = 2;
    config.strategy.data_parallel = DataParallel::kZero1;
    configs.push_back(config);
    config = Tiny(profile);
    config.schedule.name = info->name;
    configs.push_back(config);
  }
  return configs;
}

std::string Outcome(const RunConfig& config, RunContext* context) {
  const absl::StatusOr<SimulatedRun> run =
      Simulate(config, context, {.interval = true});
  return run.ok() ? ReportToJson(run->report)
                  : std::string(run.status().message());
}

TEST_CASE("run: four threads find what one finds", "[run]") {
  constexpr int kThreads = 4;
  const TemporaryFolder folder;
  const std::vector<RunConfig> configs =
      Many(folder.Write("p.txtpb", WriteProfile(testing::TinyProfile())));
  std::vector<std::string> alone;
  int ran = 0;
  for (const RunConfig& config : configs) {
    RunContext context;
    alone.push_back(Outcome(config, &context));
    ran += alone.back().front() == '{';
  }
  CHECK(ran > static_cast<int>(configs.size()) / 2);
  RunContext shared;
  // All threads run all of it, each from a place of its own.
  std::vector<std::vector<std::string>> found(kThreads);
  std::vector<std::thread> threads;
  for (int index = 0; index < kThreads; ++index) {
    found[index].resize(configs.size());
    threads.emplace_back([&, index] {
      for (size_t step = 0; step < configs.size(); ++step) {
        const size_t at =
            (step + index * configs.size() / kThreads) % configs.size();
        found[index][at] = Outcome(configs[at], &shared);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<std::string>& each : found) {
    for (size_t at = 0; at < configs.size(); ++at) {
      INFO(*configs[at].schedule.name << ", configuration " << at);
      CHECK(each[at] == alone[at]);
    }
  }
}

}  // namespace
}  // namespace pipewright::simulated_run_test
