// strategy.dp_classes: from a configuration to a report.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/program/program.h"
#include "sim/report/report.h"
#include "sim/run/simulated_run.h"
#include "tests/support/prepare.h"

namespace pipewright::dp_classes_test {
namespace {

using testing::Prepared;
using testing::PrepareText;

// F 1 s, BW 2 s, free hops: 1F1B takes (m + pp - 1) * 3 s.
std::string Run(const std::string& classes, const std::string& more = "") {
  return absl::StrCat(
      "schedule: {name: 1f1b}\nstrategy: {pp: 2, data_parallel: ddp, "
      "dp_classes: {",
      classes, "}}\n",
      "costs: {uniform: {forward: 1s, backward_input: 1s, backward_weight: 1s},"
      " gradient_bytes: 1MiB}\nengine: fast\n",
      more);
}

SimulatedRun Simulated(const std::string& yaml) {
  absl::StatusOr<SimulatedRun> run = Simulate(Prepared(yaml));
  INFO(run.status());
  REQUIRE(run.ok());
  return *std::move(run);
}

TEST_CASE("dp_classes: numbers of microbatches and a slow rank",
          "[config][dp_classes]") {
  const SimulatedRun run =
      Simulated(Run("replicas: [3, 1], microbatches: [4, 3], slower: [1, 2], "
                    "slow_rank: [-1, 0]"));
  const Program& program = *run.program;
  REQUIRE(program.num_classes() == 2);
  CHECK(program.replicas == 4);
  CHECK(program.class_of_replica == std::vector<int>{0, 0, 0, 1});
  const Report& report = run.report;
  CHECK(report.dp == 4);
  REQUIRE(report.dp_classes);
  const ClassesReport& classes = *report.dp_classes;
  REQUIRE(classes.classes.size() == 2);
  // Of class 1, rank 0 takes 2 s and 4 s a microbatch: three of them one after
  // the other, and 3 s on rank 1 between the first F and the first BW.
  CHECK(classes.classes[0].span_s == Approx(15));
  CHECK(classes.classes[1].busy_s == Approx(18));
  CHECK(classes.classes[1].span_s > 18);
  CHECK(classes.slowest == 1);
  CHECK(report.span_s.global == Approx(classes.classes[1].span_s));
  CHECK(report.microbatches == 3);
  CHECK(report.ops == 12);
  CHECK(classes.spread == Approx(1 - 15 / classes.classes[1].span_s));
  // 4 + 4 + 4 + 3 microbatches.
  CHECK(classes.classes[0].gradient_weight == Approx(4.0 / 15));
  CHECK(classes.classes[1].gradient_weight == Approx(3.0 / 15));
  CHECK(report.iteration_s == Approx(classes.classes[1].span_s));
  const std::string text = ReportToText(report);
  CHECK(absl::StrContains(text, "slowest"));
  const std::string json = ReportToJson(report);
  CHECK(absl::StrContains(json, "\"dp_classes\""));
}

TEST_CASE("dp_classes: schedules and factors of each", "[config][dp_classes]") {
  std::string yaml =
      Run("replicas: [1, 1], microbatches: [2, 3], schedule: [1f1b, gpipe], "
          "microbatch_factor: [1, 1, 1, 2, 1]");
  yaml.erase(0, yaml.find('\n') + 1);  // no schedule.name
  const SimulatedRun run = Simulated(yaml);
  CHECK(run.program->dp_class(0).schedule->name == "1f1b");
  CHECK(run.program->dp_class(1).schedule->name == "gpipe");
  CHECK(run.program->dp_class(1).microbatch_factor ==
        std::vector<double>{1, 2, 1});
  REQUIRE(run.report.dp_classes);
  CHECK(run.report.dp_classes->classes[0].span_s == Approx(9));
  // Three microbatches of 3 s, the second twice as long.
  CHECK(run.report.dp_classes->classes[1].busy_s == Approx(12));
  CHECK(run.report.schedule == "gpipe");
}

TEST_CASE("dp_classes: classes that are alike are what one class is",
          "[config][dp_classes]") {
  const SimulatedRun two =
      Simulated(Run("replicas: [2, 1], microbatches: [4, 4]"));
  const SimulatedRun one = Simulated(
      "schedule: {name: 1f1b}\nstrategy: {pp: 2, microbatches: 4, dp: 3, "
      "data_parallel: ddp}\ncosts: {uniform: {forward: 1s, backward_input: 1s, "
      "backward_weight: 1s}, gradient_bytes: 1MiB}\nengine: fast\n");
  CHECK(two.report.iteration_s == one.report.iteration_s);
  CHECK(two.report.span_s.global == one.report.span_s.global);
  CHECK(two.report.peak_activations == one.report.peak_activations);
  CHECK(two.report.bytes_sent == one.report.bytes_sent);
  CHECK(two.report.dp_classes->spread == 0);
  CHECK_FALSE(one.report.dp_classes);
}

TEST_CASE("dp_classes: memory is that of the class that needs most",
          "[config][dp_classes]") {
  const std::string yaml =
      "schedule: {name: gpipe}\nmodel: {preset: gpt-tiny}\n"
      "strategy: {pp: 2, dp_classes: {replicas: [1, 2], microbatches: [2, "
      "6]}}\n"
      "costs: {uniform: {forward: 1s, backward_input: 1s, backward_weight: "
      "1s}}\nengine: fast\n";
  const SimulatedRun run = Simulated(yaml);
  REQUIRE(run.report.dp_classes);
  const ClassesReport& classes = *run.report.dp_classes;
  CHECK(classes.hungriest == 1);
  REQUIRE(classes.classes[1].peak_memory_bytes.size() == 2);
  // GPipe holds all microbatches.
  CHECK(classes.classes[1].peak_memory_bytes[0] >
        classes.classes[0].peak_memory_bytes[0]);
  CHECK(run.report.peak_activations == std::vector<double>{6, 6});
  CHECK(MostOfClasses(classes, &DpClassReport::peak_memory_bytes) ==
        classes.classes[1].peak_memory_bytes);
  CHECK(PeakMemoryOf(run.report) == classes.classes[1].peak_memory_bytes);
  CHECK(MostPeakMemoryOf(run.report) ==
        std::max(classes.classes[1].peak_memory_bytes[0],
                 classes.classes[1].peak_memory_bytes[1]));
  // Tokens of all replicas: 2 + 6 + 6 microbatches.
  const SimulatedRun six = Simulated(
      "schedule: {name: gpipe}\nmodel: {preset: gpt-tiny}\n"
      "strategy: {pp: 2, dp: 1, microbatches: 14}\n"
      "costs: {uniform: {forward: 1s, backward_input: 1s, backward_weight: "
      "1s}}\nengine: fast\n");
  CHECK(*run.prepared.tokens == Approx(*six.prepared.tokens));
}

TEST_CASE("dp_classes: what does not fit is refused by field",
          "[config][dp_classes]") {
  struct Bad {
    std::string classes;
    std::string part;
  };
  const std::vector<Bad> table = {
      {"microbatches: [4, 3]", "strategy.dp_classes.replicas: missing"},
      {"replicas: [1, 1], microbatches: [4]",
       "strategy.dp_classes.microbatches: a list of 1"},
      {"replicas: [1, 1], microbatches: [4, 4], slower: [1]",
       "strategy.dp_classes.slower: a list of 1"},
      {"replicas: [1, 1], microbatches: [4, 4], slower: [1, 0]",
       "strategy.dp_classes.slower: 0 is not allowed; allowed: a number from"},
      {"replicas: [1, 1], microbatches: [4, 4], slow_rank: [0, 1]",
       "strategy.dp_classes.slower: missing"},
      {"replicas: [1, 1], microbatches: [4, 4], slower: [1, 2], "
       "slow_rank: [0, 2]",
       "strategy.dp_classes.slow_rank: 2"},
      {"replicas: [1, 1], microbatches: [4, 4], microbatch_factor: [1, 1]",
       "strategy.dp_classes.microbatch_factor: a list of 2"},
      {"replicas: [1, 1], microbatches: [4, 4], schedule: [1f1b, gpipe]",
       "schedule.name"},
      {"replicas: [0, 1], microbatches: [4, 4]",
       "strategy.dp_classes.replicas: 0"},
      {"replicas: [1, 1]", "strategy.microbatches: missing"},
  };
  for (const Bad& bad : table) {
    INFO(bad.classes);
    const absl::Status status = PrepareText(Run(bad.classes)).status();
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), bad.part));
  }
  // dp is the sum.
  std::string yaml = Run("replicas: [1, 2], microbatches: [4, 4]");
  yaml.replace(yaml.find("pp: 2"), 5, "pp: 2, dp: 4");
  CHECK(absl::StrContains(PrepareText(yaml).status().message(),
                          "strategy.dp: 4"));
}

TEST_CASE("dp_classes: replicas that would wait forever",
          "[config][dp_classes]") {
  std::string yaml = Run("replicas: [1, 1], microbatches: [4, 3]");
  yaml.replace(yaml.find("ddp"), 3, "fsdp");
  const absl::Status status = Simulate(Prepared(yaml)).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(status.message(), "strategy.dp_classes"));
  CHECK(absl::StrContains(status.message(), "deadlock"));
}

}  // namespace
}  // namespace pipewright::dp_classes_test
