// The control beside a table of runs: what it is worth is counted by hand.
#include "sim/analysis/compare/run_summary.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "tests/support/json.h"

namespace pipewright::control_test {
namespace {

// Two layers a rank, four sequences of 128 tokens a microbatch.
ExecutedRow Row(const std::string& schedule, int pp, int microbatches,
                double predicted_s, double executed_s) {
  std::string layers = "2";
  for (int stage = 1; stage < pp; ++stage) layers += " 2";
  return {.schedule = schedule,
          .pp = pp,
          .microbatches = microbatches,
          .microbatch_size = 4,
          .sequence = 128,
          .layers = layers,
          .clock = "virtual",
          .shortest_pass_s = 1e-3,
          .predicted_s = predicted_s,
          .executed_s = executed_s,
          .gradients = "bits",
          .peak_activations = "1",
          .date = "2026-01-02T03:04:05Z"};
}

// F, B or W of two layers and of so many tokens.
constexpr double kPass = 2 * 4 * 128;

TEST_CASE("control: counts passes of equal length", "[compare]") {
  // Fill and drain of p - 1 microbatches, each F + B + W.
  CHECK(ControlStep(Row("gpipe", 4, 8, 1, 1)).value() ==
        Approx((8 + 3) * 3 * kPass));
  CHECK(ControlStep(Row("1f1b", 4, 8, 1, 1)).value() ==
        Approx((8 + 3) * 3 * kPass));
  // ZB-H1 fills with W: its bubble is (p - 1)(F + B - W).
  CHECK(ControlStep(Row("zb-h1", 4, 8, 1, 1)).value() ==
        Approx(8 * 3 * kPass + 3 * kPass));
  ExecutedRow uneven = Row("gpipe", 2, 1, 1, 1);
  uneven.layers = "3 1";
  CHECK(ControlStep(uneven).value() == Approx(4 * 3 * kPass / 2));
  // A slice takes its part of a pass: with 2 of them (m n + p - 1) / n.
  ExecutedRow sliced = Row("gpipe", 4, 8, 1, 1);
  sliced.schedule = "terapipe";
  sliced.slices = 2;
  CHECK(ControlStep(sliced).value() == Approx((8 + 3 / 2.0) * 3 * kPass));
}

TEST_CASE("control: one scale, errors and order of the same runs",
          "[compare]") {
  const double gpipe = (8 + 3) * 3 * kPass;
  const double zb = 9 * 3 * kPass;
  const double small = (8 + 1) * 3 * kPass;
  const std::vector<ExecutedRow> rows = {
      Row("gpipe", 4, 8, 1, gpipe * 2e-6), Row("zb-h1", 4, 8, 1, zb * 4e-6),
      Row("gpipe", 2, 8, 1, small * 1e-6), Row("own.pws", 4, 8, 1, 1)};
  const RunsSummary runs = SummarizeRuns(rows).value();
  REQUIRE(runs.control.has_value());
  // Scales of 1, 2 and 4 us: the median is 2.
  CHECK(runs.control->runs == 3);
  CHECK(runs.control->median_error == Approx(0.5));
  CHECK(runs.control->worst_error == Approx(1));
  CHECK(runs.control->worst == "gpipe, pp 2");
  REQUIRE(runs.sizes.size() == 2);
  const ControlSummary& four = *runs.sizes[1].control;
  CHECK(four.runs == 2);
  CHECK(four.median_error == Approx(0.25));
  CHECK(four.worst_error == Approx(-0.5));
  CHECK(four.worst == "zb-h1");
  // zb-h1 is counted as the shorter one, and takes longer.
  CHECK(four.pairs == 1);
  CHECK(four.tau == -1);
  CHECK(runs.sizes[0].control->pairs == 0);
  REQUIRE(runs.without_control.size() == 1);
  CHECK(absl::StrContains(runs.without_control[0], "own.pws, pp 4"));

  const auto json = testing::Json::parse(RunsToJson(runs));
  CHECK(json["control"]["median_error"].get<double>() == Approx(0.5));
  CHECK(json["sizes"][1]["control"]["tau"].get<double>() == -1);
  CHECK(json["sizes"][0]["control"]["tau"].is_null());
  int without = 0;
  for (const auto& row : json["sizes"][1]["rows"]) {
    if (row["schedule"] == "own.pws") {
      ++without;
      CHECK(row["control_s"].is_null());
    } else {
      CHECK(row["control_error"].is_number());
    }
  }
  CHECK(without == 1);
  const std::string text = RunsToText(runs);
  INFO(text);
  CHECK(absl::StrContains(text,
                          "control: error 50.00 % in the median of 3, +100.00 "
                          "% at worst (gpipe, pp 2)"));
  CHECK(absl::StrContains(text, "no control of own.pws, pp 4: "));
  CHECK(absl::StrContains(text, "conditions: virtual clock"));
  const std::string page = RunsHtml(runs);
  CHECK(absl::StrContains(page, "id=\"control\""));
  CHECK(absl::StrContains(page, "+100.00 % (gpipe, pp 2)"));
}

TEST_CASE("control: what the table cannot tell is said", "[compare]") {
  ExecutedRow row = Row("1f1b", 4, 8, 1, 1);
  row.layers = "2 2";
  CHECK_THAT(std::string(ControlStep(row).status().message()),
             Catch::Contains("layers") && Catch::Contains("4 stages"));
  row.layers = "2 x 2 2";
  CHECK_FALSE(ControlStep(row).ok());
  row.layers = "0 0 0 0";
  CHECK_FALSE(ControlStep(row).ok());
  // None at all: no line of it.
  const RunsSummary runs = SummarizeRuns({row}).value();
  CHECK_FALSE(runs.control.has_value());
  CHECK(testing::Json::parse(RunsToJson(runs))["control"].is_null());
  CHECK_FALSE(absl::StrContains(RunsToText(runs), "\ncontrol: "));
}

}  // namespace
}  // namespace pipewright::control_test
