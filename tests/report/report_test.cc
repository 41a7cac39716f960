#include "sim/report/report.h"

#include <catch2/catch.hpp>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "sim/report/format.h"
#include "tests/support/json.h"
#include "tests/support/toy_ops.h"

namespace pipewright::report_test {
namespace {

using testing::Json;
using testing::Replay;
using testing::ToyOneForwardOneBackward;
using testing::ToyRun;

// pp ranks without schedule or costs.
Program BareProgram(int pp) {
  Program program;
  program.name = "by-hand";
  program.ranks.resize(pp);
  return program;
}

RunSummary OneRow(std::vector<RankTimes> times) {
  RunSummary run;
  run.times = {std::move(times)};
  run.row_of_replica = {0};
  return run;
}

TEST_CASE("report: 1F1B with two ranks has the bubbles found by hand",
          "[report]") {
  // rank 0: F0 0-1, F1 1-2, BW0 4-6, BW1 7-9
  // rank 1: F0 1-2, BW0 2-4, F1 4-5, BW1 5-7
  const ToyRun toy = Replay(ToyOneForwardOneBackward(2, 2), {});
  const Report report = Summarize(toy.program, toy.run, {2, 1});
  CHECK(report.span_s.global == 9);
  CHECK(report.span_s.per_rank == 9);
  CHECK(report.busy_s == 6);
  CHECK(report.bubble_fraction.global == 3.0 / 9);
  CHECK(report.bubble_overhead.global == 0.5);
  CHECK(report.iteration_s == 9);
  CHECK(report.ops == 8);
  CHECK(report.pp == 2);
  CHECK(report.microbatches == 2);
  REQUIRE(report.ranks.size() == 2);
  CHECK(report.ranks[0].idle_s == 3);
  CHECK(report.ranks[1].rank == 1);
  CHECK(report.ranks[1].first_start_s == 1);
  CHECK(report.ranks[1].last_end_s == 7);
  CHECK(report.ranks[1].span_s == 6);
  CHECK(report.ranks[1].idle_s == 0);
  CHECK(report.ranks[0].peak_activations == 2);
  CHECK(report.ranks[1].peak_activations == 1);
}

TEST_CASE("report: the global span is longer than every rank's own",
          "[report]") {
  const Report report =
      Summarize(BareProgram(2), OneRow({{0, 8, 6}, {2, 9, 7}}), {});
  CHECK(report.span_s.global == 9);
  CHECK(report.span_s.per_rank == 8);
  CHECK(report.busy_s == 7);
  CHECK(report.bubble_fraction.global == 2.0 / 9);
  CHECK(report.bubble_fraction.per_rank == 1.0 / 8);
  CHECK(report.bubble_overhead.global == 2.0 / 7);
  CHECK(report.bubble_overhead.per_rank == 1.0 / 7);
}

TEST_CASE("report: a span that starts late counts from its first start",
          "[report]") {
  const Report report =
      Summarize(BareProgram(3), OneRow({{5, 8, 3}, {0, 0, 0}, {6, 9, 2}}), {});
  CHECK(report.span_s.global == 4);
  CHECK(report.span_s.per_rank == 3);
}

TEST_CASE("report: the slowest data-parallel replica counts", "[report]") {
  Program program = BareProgram(1);
  program.replicas = 3;
  RunSummary run;
  run.times = {{{0, 4, 3}}, {{1, 9, 5}}};
  run.row_of_replica = {0, 1, 0};
  run.iteration_end_s = {10, 19, 28};
  run.steady = true;
  const Report report = Summarize(program, run, {1});
  CHECK(report.span_s.global == 8);
  CHECK(report.busy_s == 5);
  CHECK(report.bubble_overhead.global == 0.6);
  CHECK(report.iteration_s == 9);
  CHECK(report.iterations == 3);
  CHECK(report.steady);
  CHECK(report.dp == 3);
}

TEST_CASE("report: nothing to do gives zeros, not NaN", "[report]") {
  for (const RunSummary& run : {RunSummary(), OneRow({{0, 0, 0}})}) {
    const Report report = Summarize(BareProgram(1), run, {});
    CHECK(report.bubble_fraction.global == 0);
    CHECK(report.bubble_fraction.per_rank == 0);
    CHECK(report.bubble_overhead.global == 0);
    CHECK(report.bubble_overhead.per_rank == 0);
  }
}

TEST_CASE("report: rounding noise of a full rank is no idle time", "[report]") {
  const double busy = 0.1 + 0.2;  // a little above 0.3
  const Report report = Summarize(BareProgram(1), OneRow({{0, 0.3, busy}}), {});
  CHECK(report.ranks[0].idle_s == 0);
  CHECK(report.bubble_fraction.global == 0);
}

TEST_CASE("report: JSON has every key and reads back exactly", "[report]") {
  Report report = Summarize(BareProgram(2),
                            OneRow({{0.1, 8.3, 6.7}, {1.0 / 3, 9.1, 7.0 / 3}}),
                            {1.0 / 3, 2.0 / 7});
  report.engine = "fast";
  report.network = "hop \"0.6 ms\"";
  report.warnings = {"one", "two"};
  report.bytes_sent = 1e17 + 2;
  report.iteration_s = std::numeric_limits<double>::denorm_min();
  const Json json = Json::parse(ReportToJson(report));
  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  CHECK(keys == std::set<std::string>{"schedule",
                                      "engine",
                                      "network",
                                      "pp",
                                      "vpp",
                                      "microbatches",
                                      "slices",
                                      "tp",
                                      "cp",
                                      "dp",
                                      "data_parallel",
                                      "gradient_sync",
                                      "params",
                                      "model",
                                      "system",
                                      "optimizer",
                                      "time_unit",
                                      "waiting",
                                      "span_s",
                                      "busy_s",
                                      "bubble_fraction",
                                      "bubble_overhead",
                                      "iteration_s",
                                      "iteration_interval_s",
                                      "iterations",
                                      "steady",
                                      "ops",
                                      "bytes_sent",
                                      "peak_activations",
                                      "ranks",
                                      "warnings"});
  CHECK(json["span_s"]["global"].get<double>() == report.span_s.global);
  CHECK(json["span_s"]["per_rank"].get<double>() == report.span_s.per_rank);
  CHECK(json["busy_s"].get<double>() == report.busy_s);
  for (const char* name : {"bubble_fraction", "bubble_overhead"}) {
    const GlobalAndPerRank& value = name == std::string("bubble_fraction")
                                        ? report.bubble_fraction
                                        : report.bubble_overhead;
    CHECK(json[name].size() == 2);
    CHECK(json[name]["global"].get<double>() == value.global);
    CHECK(json[name]["per_rank"].get<double>() == value.per_rank);
  }
  CHECK(json["iteration_s"].get<double>() == report.iteration_s);
  CHECK(json["bytes_sent"].get<double>() == report.bytes_sent);
  CHECK(json["ops"].is_number_integer());
  CHECK(json["steady"].is_boolean());
  CHECK(json["network"] == report.network);
  CHECK(json["warnings"] == std::vector<std::string>{"one", "two"});
  CHECK(json["peak_activations"].get<std::vector<double>>() ==
        report.peak_activations);
  REQUIRE(json["ranks"].size() == 2);
  const Json& rank = json["ranks"][1];
  CHECK(rank.size() == 7);
  CHECK(rank["rank"] == 1);
  CHECK(rank["busy_s"].get<double>() == report.ranks[1].busy_s);
  CHECK(rank["span_s"].get<double>() == report.ranks[1].span_s);
  CHECK(rank["idle_s"].get<double>() == report.ranks[1].idle_s);
  CHECK(rank["first_start_s"].get<double>() == 1.0 / 3);
  CHECK(rank["last_end_s"].get<double>() == 9.1);
  CHECK(rank["peak_activations"].get<double>() == 2.0 / 7);
}

TEST_CASE("report: a name that is not UTF-8 still gives JSON", "[report]") {
  Report report;
  report.schedule = "odd\xff name";
  CHECK(Json::parse(ReportToJson(report))["schedule"] ==
        "odd\xef\xbf\xbd name");
}

TEST_CASE("report: the text names both bubbles and what is left out",
          "[report]") {
  const ToyRun toy = Replay(ToyOneForwardOneBackward(2, 2),
                            {18.522e-3, 18.086e-3, 9.337e-3, 0.601e-3});
  Report report = Summarize(toy.program, toy.run, {2, 1});
  report.engine = "fast";
  report.network = "hop 0.601 ms";
  report.warnings = {"mind the gap"};
  const std::string text = ReportToText(report);
  INFO(text);
  for (const char* part :
       {"1f1b: pp 2, vpp 1, microbatches 2, engine fast, network hop 0.601 ms",
        "(span - busy) / span", "(span - busy) / busy", "first start on any",
        "iteration time", "busy (ms)", "peak activations",
        "not modelled: kernel launch gaps; the optimizer step",
        "warning: mind the gap"}) {
    CHECK(absl::StrContains(text, part));
  }
  CHECK(!absl::StrContains(text, "nan"));
}

TEST_CASE("report: many ranks are cut to the first and the last eight",
          "[report]") {
  std::vector<RankTimes> times(100, {0, 2, 1});
  const std::string text =
      ReportToText(Summarize(BareProgram(100), OneRow(times), {}));
  INFO(text);
  CHECK(absl::StrContains(text, "… 84 more"));
  int rows = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    rows += absl::StrContains(line, "2000.000") ? 1 : 0;
  }
  CHECK(rows == 16);
  CHECK(absl::StrContains(text, "\n     7 "));
  CHECK(!absl::StrContains(text, "\n     8 "));
  CHECK(!absl::StrContains(text, "\n    91 "));
  CHECK(absl::StrContains(text, "\n    92 "));
}

TEST_CASE("report: times, bytes and texts read well", "[report]") {
  CHECK(FormatPercent(1.0 / 12) == "8.33 %");
  CHECK(FormatChange(1.0 / 12) == "+8.33 %");
  CHECK(FormatChange(-0.5) == "-50.00 %");
  CHECK(ByteUnitFor(3 * 1024.0 * 1024).name == "MiB");
  CHECK(ByteUnitFor(1024.0 * 1024 * 1024).bytes == 1024.0 * 1024 * 1024);
  CHECK(ByteUnitFor(1023).name == "B");
  CHECK(ReportLine("busy", "4 ms", "of the busiest rank") ==
        "busy                 4 ms  of the busiest rank\n");
  CHECK(
      TextTable({{"", "time"}, {"F forward", "3 ms"}, {"W"}, {"B", "10 ms"}}) ==
      "            time\n"
      "F forward   3 ms\n"
      "W\n"
      "B          10 ms\n");
  CHECK(EscapeXml("a<b & \"c\" 'd'>\x01\xff\xe2\x80\xa6") ==
        "a&lt;b &amp; &quot;c&quot; &#39;d&#39;&gt; \xef\xbf\xbd\xe2\x80\xa6");
}

}  // namespace
}  // namespace pipewright::report_test
