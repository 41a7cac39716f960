// Section reliability of a configuration: what the report says of it, and what
// is refused.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/report/reliability_report.h"
#include "sim/run/simulated_run.h"
#include "tests/support/json.h"
#include "tests/support/prepare.h"

namespace pipewright::testing::reliability_run_test {
namespace {

std::string Job(int dp, const std::string& reliability) {
  return absl::StrCat(
      "schedule: {name: gpipe}\nengine: fast\nstrategy: {pp: 2, microbatches: "
      "2, dp: ",
      dp,
      ", tp: 2}\ncosts: {uniform: {forward: 1s, backward_input: 1s, "
      "backward_weight: 1s}, p2p: 1ms}\nreliability: {",
      reliability, "}\n");
}

Report RunReportOf(const std::string& yaml) {
  absl::StatusOr<SimulatedRun> run = Simulate(Prepared(yaml), {});
  INFO(run.status());
  REQUIRE(run.ok());
  REQUIRE(run->report.reliability.has_value());
  const ReliabilityReport& report = *run->report.reliability;
  CHECK(absl::StrContains(ReportToJson(run->report), "\"reliability\""));
  CHECK(absl::StrContains(ReportToText(run->report), "Daly"));
  CHECK(*report.steps ==
        Approx(report.mean.kept * report.horizon_s / run->report.iteration_s));
  return run->report;
}

ReliabilityReport ReportOf(const std::string& yaml) {
  return *RunReportOf(yaml).reliability;
}

TEST_CASE("reliability: the mean is the formula's, 8 and 8000 devices alike",
          "[goodput]") {
  const std::string rest =
      "checkpoint_write: 1min, checkpoint_every: 30min, restart: 10min, seeds: "
      "4000";
  const ReliabilityReport few =
      ReportOf(Job(2, "mtbf_per_device: 40h, " + rest));
  const ReliabilityReport many =
      ReportOf(Job(2000, "mtbf_per_device: 40000h, " + rest));
  CHECK(few.job.devices == 8);
  CHECK(many.job.devices == 8000);
  CHECK(few.mean.kept == many.mean.kept);
  for (const ReliabilityReport& report : {few, many}) {
    CHECK(std::abs(report.mean.kept - report.formula.kept) <
          0.01 * report.formula.kept);
    CHECK(report.p5 < report.p50);
    CHECK(report.p50 < report.p95);
    CHECK(report.horizon_s == 86400);
  }
}

TEST_CASE("reliability: without an interval Daly's is taken", "[goodput]") {
  const ReliabilityReport report =
      ReportOf(Job(2,
                   "mtbf_per_device: 40h, checkpoint_write: 1min, horizon: "
                   "12h, seeds: 5, seed: 3"));
  CHECK(!report.interval_given);
  CHECK(report.job.checkpoint_every_s == DalyInterval(report.job));
  CHECK(report.horizon_s == 43200);
  CHECK(report.seeds == 5);
  CHECK(report.seed == 3);
}

TEST_CASE("reliability: hardly any failures give no interval", "[goodput]") {
  const auto error = [](const std::string& mtbf, int seeds) {
    const Report report = RunReportOf(
        Job(2, absl::StrCat("mtbf_per_device: ", mtbf,
                            ", checkpoint_write: 1min, seeds: ", seeds)));
    return Json::parse(ReportToJson(report))["reliability"]["goodput_error"];
  };
  CHECK(error("40h", 1).is_null());
  CHECK(error("200000h", 20).is_null());
  CHECK(error("40h", 100) > 0);
}

TEST_CASE("reliability: what a job that fails lacks is named", "[goodput]") {
  const auto refuse = [](const std::string& reliability, const char* field,
                         const char* words) {
    const absl::StatusOr<PreparedRun> run = PrepareText(Job(2, reliability));
    INFO(reliability << "\n" << run.status());
    REQUIRE(run.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(run.status().message(), field));
    CHECK(absl::StrContains(run.status().message(), words));
  };
  refuse("mtbf_per_device: 40h", "reliability.checkpoint_write", "missing");
  refuse("mtbf_per_device: 0s, checkpoint_write: 1min",
         "reliability.mtbf_per_device", "above 0");
  refuse("mtbf_per_device: 40h, checkpoint_write: 0s",
         "reliability.checkpoint_every", "missing");
  refuse("mtbf_per_device: 40h, checkpoint_write: 1s, checkpoint_every: 0s",
         "reliability.checkpoint_every", "above 0");
  refuse("mtbf_per_device: 40h, checkpoint_write: 1s, horizon: 0s",
         "reliability.horizon", "above 0");
  refuse("mtbf_per_device: 1s, checkpoint_write: 1s, seeds: 1000000",
         "reliability.seeds", "failures to draw");
  // Without it the others do nothing, and the run says so.
  CHECK(Warns(Prepared(Job(2, "checkpoint_write: 1s")),
              "without reliability.mtbf_per_device"));
}

}  // namespace
}  // namespace pipewright::testing::reliability_run_test
