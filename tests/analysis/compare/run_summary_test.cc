// Tables of executed runs and what they say together.
#include "sim/analysis/compare/run_summary.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/xml_check.h"

namespace pipewright::run_summary_test {
namespace {

ExecutedRow Row(const std::string& schedule, int pp, double predicted_s,
                double executed_s) {
  return {.schedule = schedule,
          .pp = pp,
          .microbatches = 8,
          .microbatch_size = 4,
          .sequence = 128,
          .layers = "2 2",
          .steps = 2,
          .clock = "virtual",
          .shortest_pass_s = 6e-3,
          .predicted_s = predicted_s,
          .executed_s = executed_s,
          .gradients = "bits",
          .peak_activations = "2 1",
          .wall_s = 3,
          .date = "2026-01-02T03:04:05Z",
          .device = "a \"toy\", small",
          .version = "1",
          .profile = "toy <cpu>",
          .options = "00"};
}

std::string Table(const std::vector<ExecutedRow>& rows) {
  std::string text = ExecutedTableHeader();
  for (const ExecutedRow& row : rows) text += ExecutedTableLine(row);
  return text;
}

std::string ErrorOf(const std::string& text) {
  return std::string(ParseExecutedTable(text, "t.csv").status().message());
}

TEST_CASE("runs: a table reads back what was written", "[compare]") {
  ExecutedRow uneven = Row("1f1b", 8, 0.25, 1.0 / 3);
  uneven.layers = "3 1";
  uneven.libraries = "one, two";
  uneven.executed_s = 0.333333333;
  const std::vector<ExecutedRow> rows = {Row("gpipe", 4, 1, 1.25), uneven};
  const auto read = ParseExecutedTable(Table(rows), "t.csv");
  INFO(read.status());
  REQUIRE(read.ok());
  CHECK(*read == rows);
  CHECK(rows[0].error() == Approx(-0.2));
  CHECK(rows[0].even());
  CHECK_FALSE(uneven.even());
}

TEST_CASE("runs: what is wrong in a table is named", "[compare]") {
  const ExecutedRow row = Row("gpipe", 4, 1, 1.25);
  CHECK_THAT(ErrorOf("schedule,pp\n"), Catch::Contains("t.csv:1"));
  CHECK_THAT(ErrorOf(""), Catch::Contains("empty"));
  CHECK_THAT(ErrorOf(Table({row}) + "gpipe,4\n"),
             Catch::Contains("t.csv:3") && Catch::Contains("2 cells"));
  ExecutedRow bad = row;
  bad.executed_s = -1;
  CHECK_THAT(ErrorOf(Table({bad})),
             Catch::Contains("t.csv:2: executed_s") && Catch::Contains("-1"));
  bad = row;
  bad.gradients = "fine";
  CHECK_THAT(ErrorOf(Table({bad})), Catch::Contains("bits, differ"));
  bad = row;
  bad.pp = 0;
  CHECK_THAT(ErrorOf(Table({bad})), Catch::Contains("t.csv:2: pp"));
  CHECK_FALSE(SummarizeRuns({}).ok());
}

TEST_CASE("runs: errors, order and ties", "[compare]") {
  // 1 before 2 before 4 as predicted; "near" ties with "two"; "four" runs
  // faster than "two" and "near".
  std::vector<ExecutedRow> rows = {
      Row("four", 4, 4, 1.5), Row("two", 4, 2, 2.5), Row("near", 4, 2.02, 1.9),
      Row("one", 4, 1, 1), Row("other", 8, 3, 2.7)};
  rows[1].gradients = "differ";
  rows[2].gradients = "tolerance";
  rows[3].peak_activations = "2 1 != 1 1";
  rows[4].gradients = "unchecked";
  const RunsSummary runs = SummarizeRuns(rows).value();
  REQUIRE(runs.sizes.size() == 2);
  const RanksSummary& four = runs.sizes[0];
  CHECK(four.runs[0].row.schedule == "one");
  CHECK(four.runs[3].row.schedule == "four");
  CHECK(four.ties ==
        std::vector<std::pair<std::string, std::string>>{{"two", "near"}});
  CHECK(four.pairs == 5);
  CHECK(four.swapped.size() == 2);
  CHECK(four.tau == Approx((3.0 - 2) / 5));
  // 0, 2.02 / 1.9 - 1, 0.2, 4 / 1.5 - 1
  CHECK(four.median_error == Approx((2.02 / 1.9 - 1 + 0.2) / 2));
  CHECK(four.worst == "four");
  CHECK(runs.median_error == Approx(3 / 2.7 - 1));
  CHECK(runs.worst == "four, pp 4");
  CHECK(runs.worst_error == Approx(4 / 1.5 - 1));
  CHECK(runs.sizes[1].pairs == 0);
  CHECK(runs.agree == 3);
  CHECK(runs.same_bits == 2);
  CHECK(runs.unchecked == 1);
  CHECK(runs.peaks_agree == 4);
  CHECK(runs.wall_s == 15);

  const auto json = testing::Json::parse(RunsToJson(runs));
  CHECK(json["sizes"][0]["tau"].get<double>() == Approx(0.2));
  CHECK(json["sizes"][1]["tau"].is_null());
  CHECK(json["sizes"][0]["ties"][0][1] == "near");
  CHECK(absl::StrContains(RunsToText(runs), "tau 0.200, 1 within 2 %"));
  CHECK(testing::XmlProblem(RunsSvg(runs)) == "");
  const std::string page = RunsHtml(runs);
  CHECK(absl::StrContains(page, "id=\"pp8\""));
  CHECK(absl::StrContains(page, "two – near"));
  CHECK(absl::StrContains(page, "toy &lt;cpu&gt;"));
  CHECK(absl::StrContains(page, "2 1 != 1 1"));
  CHECK_FALSE(absl::StrContains(page, "src="));
  CHECK_FALSE(absl::StrContains(page, "href=\"http"));
}

TEST_CASE("runs: of several executions of one run the median counts",
          "[compare]") {
  std::vector<ExecutedRow> rows = {Row("one", 4, 1.0, 1.0), Row("two", 4, 2, 4),
                                   Row("one", 4, 1.1, 1.3), Row("two", 4, 2, 2),
                                   Row("one", 4, 0.9, 1.1)};
  rows[2].gradients = "unchecked";
  rows[4].gradients = "tolerance";
  rows[3].gradients = "differ";
  rows[1].gradients = "unchecked";
  rows[2].peak_activations = "2 1 != 1 1";
  rows[4].shortest_pass_s = 5e-3;
  const RunsSummary runs = SummarizeRuns(rows).value();
  CHECK(runs.runs == 2);
  CHECK(runs.executions == 5);
  REQUIRE(runs.sizes.size() == 1);
  REQUIRE(runs.sizes[0].runs.size() == 2);
  const RepeatedRun& one = runs.sizes[0].runs[0];
  CHECK(one.executions == 3);
  CHECK(one.row.predicted_s == Approx(1.0));
  CHECK(one.row.executed_s == Approx(1.1));
  CHECK(one.error() == Approx(1 / 1.1 - 1));
  CHECK(one.least_error == Approx(0.9 / 1.1 - 1));
  CHECK(one.most_error == Approx(0));
  CHECK(one.row.gradients == "tolerance");
  CHECK(one.row.peak_activations == "2 1 != 1 1");
  const RepeatedRun& two = runs.sizes[0].runs[1];
  CHECK(two.row.executed_s == Approx(3));
  CHECK(two.row.gradients == "differ");
  CHECK(runs.agree == 1);
  CHECK(runs.peaks_agree == 1);
  CHECK(runs.wall_s == 15);
  CHECK(runs.shortest_pass_s == Approx(5e-3));
  CHECK(runs.worst == "two, pp 4");
  CHECK(runs.median_error == Approx((1 - 1 / 1.1 + 1.0 / 3) / 2));

  const auto json = testing::Json::parse(RunsToJson(runs));
  CHECK(json["executions"] == 5);
  CHECK(json["sizes"][0]["rows"][0]["executions"] == 3);
  CHECK(json["sizes"][0]["rows"][1]["least_error"].get<double>() ==
        Approx(-0.5));
  CHECK(absl::StrContains(RunsToText(runs), "2 runs, executed 5 times"));
  CHECK(testing::XmlProblem(RunsSvg(runs)) == "");
  CHECK(absl::StrContains(RunsSvg(runs),
                          "one: -9.09 % in the median of 3, -18.18 % to "));
  // With another clock, or other options, it is another run.
  rows[0].clock = "real";
  rows[1].options = "01";
  CHECK(SummarizeRuns(rows).value().runs == 4);
  rows[2].device = "another";
  CHECK(SummarizeRuns(rows).value().runs == 5);
}

TEST_CASE("runs: the closed loop's page is that of its table", "[compare]") {
  const std::string folder = testing::SourcePath("experiments/closed_loop/");
  const auto rows = ParseExecutedTable(
      ReadFile(folder + "measured.csv").value(), "measured.csv");
  INFO(rows.status());
  REQUIRE(rows.ok());
  const RunsSummary runs = SummarizeRuns(*rows).value();
  CHECK(RunsToText(runs) == ReadFile(folder + "summary.txt").value());
  CHECK(RunsSvg(runs) == ReadFile(folder + "results.svg").value());
  CHECK(runs.agree == runs.runs);
  CHECK(runs.peaks_agree == runs.runs);
  CHECK(absl::StrContains(ReadFile(folder + "results.html").value(),
                          RunsSvg(runs)));
  // And so are the numbers that people read first.
  const std::string page =
      ReadFile(testing::SourcePath("docs/execute.md")).value();
  CHECK(absl::StrContains(
      page, absl::StrFormat("off by %.1f %% in the median, %.1f %% at worst",
                            100 * runs.median_error,
                            100 * std::abs(runs.worst_error))));
  CHECK(runs.runs == 64);
  const ControlSummary& control = *runs.control;
  CHECK(absl::StrContains(
      page, absl::StrFormat("| %.1f %% in the median, %.1f %% at worst; tau",
                            100 * control.median_error,
                            100 * std::abs(control.worst_error))));
  const std::string own = ReadFile(folder + "README.md").value();
  for (const RanksSummary& size : runs.sizes) {
    CHECK(absl::StrContains(
        own, absl::StrFormat("| %.1f %% | %.1f %%", 100 * size.median_error,
                             100 * std::abs(size.worst_error))));
    CHECK(absl::StrContains(
        own, absl::StrFormat("| %.3f | %.1f %% | %.1f %%", size.tau,
                             100 * size.control->median_error,
                             100 * std::abs(size.control->worst_error))));
    CHECK(absl::StrContains(own,
                            absl::StrFormat("| %.3f |\n", size.control->tau)));
  }
}

}  // namespace
}  // namespace pipewright::run_summary_test
