// The verb diagnose as a user calls it: report, JSON with the keys that the
// documentation lists, pictures, exit codes.
#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"
#include "tests/support/xml_check.h"

namespace pipewright::diagnose_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::SourcePath;
using testing::TemporaryFolder;

std::string Job(const char* name) {
  return SourcePath(absl::StrCat("tests/oracle/stragglers_", name, ".csv.gz"));
}

TEST_CASE("diagnose: report, pictures and timeline of a job", "[cli]") {
  const TemporaryFolder folder;
  const std::string svg = folder.Path("heat.svg");
  const std::string html = folder.Path("page.html");
  const std::string timeline = folder.Path("ideal.json");
  const BinaryResult run = RunBinary({"diagnose", Job("ST"), "--svg", svg,
                                      "--html", html, "--timeline", timeline});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  for (const char* part : {"4 stages, 2 replicas, 32 steps of 212 operations",
                           "-1.89 % of the recorded", "slowdown by stragglers",
                           "forward-pp-comm", "stage 3"}) {
    INFO(part << "\n" << run.out);
    CHECK(absl::StrContains(run.out, part));
  }
  const std::string picture = ReadFile(svg).value();
  CHECK(testing::XmlProblem(picture).empty());
  CHECK(testing::Count(picture, "class=\"cell\"") == 8);
  CHECK(testing::XmlProblem(ReadFile(html).value()).empty());
  CHECK(Json::parse(ReadFile(timeline).value())["traceEvents"].is_array());
}

TEST_CASE("diagnose: every key of the JSON is documented", "[cli]") {
  const BinaryResult run = RunBinary({"diagnose", Job("ST"), "--json"});
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  const std::string page = ReadFile(SourcePath("docs/diagnose.md")).value();
  std::set<std::string> keys;
  const std::function<void(const Json&)> collect = [&](const Json& json) {
    for (const auto& item : json.items()) {
      if (json.is_object()) keys.insert(item.key());
      if (item.value().is_structured()) collect(item.value());
    }
  };
  collect(report);
  CHECK(keys.size() > 20);
  for (const std::string& key : keys) {
    INFO(key);
    CHECK(absl::StrContains(page, absl::StrCat("`", key, "`")));
  }
  CHECK(report["gap_error"].get<double>() == Approx(-0.0189).margin(1e-4));
  CHECK(report["stages"].size() == 4);
  CHECK(report["workers"].size() == 8);
  // The median of what computes is another ideal.
  const Json median = Json::parse(
      RunBinary({"diagnose", Job("ST"), "--json", "--ideal", "median"}).out);
  CHECK(median["ideal"] == "median");
  CHECK(median["ideal_s"] != report["ideal_s"]);
  CHECK(median["no_gap_s"] == report["no_gap_s"]);
}

TEST_CASE("diagnose: a trace of simulate and of execute", "[cli]") {
  const TemporaryFolder folder;
  const std::string trace = folder.Path("sim.json");
  REQUIRE(RunBinary({"simulate", "--schedule", "zb-h1", "--pp", "4",
                     "--microbatches", "8", "--forward", "1ms,1ms,2ms,1ms",
                     "--backward-input", "1ms,1ms,2ms,1ms", "--backward-weight",
                     "1ms,1ms,2ms,1ms", "--p2p", "0.1ms", "--engine", "fast",
                     "--trace", trace})
              .exit_code == 0);
  const BinaryResult run = RunBinary({"diagnose", trace, "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  CHECK(report["form"] == "pipewright");
  CHECK(std::abs(report["gap_error"].get<double>()) < 1e-6);
  const Json& ranks = report["stages"];
  REQUIRE(ranks.size() == 4);
  for (const size_t other : {0, 1, 3}) {
    CHECK(ranks[2]["slowdown_keep"] > ranks[other]["slowdown_keep"]);
  }
  CHECK(report["time_unit"] == "s");
}

TEST_CASE("diagnose: a trace in units has no seconds", "[cli]") {
  const TemporaryFolder folder;
  const std::string trace = folder.Path("sim.json");
  REQUIRE(
      RunBinary({"simulate", "--schedule", "1f1b", "--pp", "2",
                 "--microbatches", "4", "--engine", "fast", "--trace", trace})
          .exit_code == 0);
  const BinaryResult text = RunBinary({"diagnose", trace});
  INFO(text.out << text.err);
  REQUIRE(text.exit_code == 0);
  CHECK(absl::StrContains(text.out, " units"));
  CHECK_FALSE(absl::StrContains(text.out, " s "));
  CHECK(
      Json::parse(RunBinary({"diagnose", trace, "--json"}).out)["time_unit"] ==
      "unit");
}

// A step of F, BW and an optimizer, from `start_us`; F lasts `forward_us`.
std::string KinetoStep(int start_us, int forward_us) {
  const auto region = [](const char* name, int from_us, int length_us) {
    return absl::StrCat(
        "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"", name,
        "\", \"ts\": ", from_us, ", \"dur\": ", length_us,
        ", \"pid\": 1, \"tid\": 1}");
  };
  return absl::StrCat(region("forward", start_us, forward_us), ",\n",
                      region("backward", start_us + 5000, 3000), ",\n",
                      region("Optimizer.step#Adam.step", start_us + 8000, 500));
}

TEST_CASE("diagnose: one trace of PyTorch's profiler", "[cli]") {
  const TemporaryFolder folder;
  const std::string trace = folder.Write(
      "rank0.json", absl::StrCat("{\"traceEvents\": [", KinetoStep(0, 1000),
                                 ",\n", KinetoStep(10000, 2000), "]}"));
  const BinaryResult run = RunBinary({"diagnose", trace, "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  CHECK(report["form"] == "kineto");
  CHECK(report["pp"] == 1);
  CHECK(report["operations"] == 3);
  REQUIRE(report["steps"].size() == 2);
  CHECK(report["steps"][0]["recorded_s"].get<double>() == Approx(8.5e-3));
  CHECK(report["steps"][0]["no_gap_s"].get<double>() == Approx(4.5e-3));
  CHECK(report["steps"][1]["no_gap_s"].get<double>() == Approx(5.5e-3));
  const BinaryResult one = RunBinary({"diagnose", trace, "--skip", "1"});
  CHECK(one.exit_code == 0);
  CHECK(absl::StrContains(one.out, "one step of 3 operations"));
  CHECK(RunBinary({"diagnose", trace, "--pp", "2"}).exit_code == 2);
}

std::string TrainingLogText() {
  std::string text = "using world size: 8\n";
  for (int step = 1; step <= 4; ++step) {
    absl::StrAppend(&text, " iteration        ", step,
                    "/ 50 | consumed samples: 16 | elapsed time per iteration "
                    "(ms): ",
                    step == 1   ? 9000
                    : step == 4 ? 1500
                                : 1000,
                    " | global batch size: 16 |\n");
  }
  return text;
}

TEST_CASE("diagnose: the log of a training run", "[cli]") {
  const TemporaryFolder folder;
  const std::string log = folder.Write("train.log", TrainingLogText());
  const BinaryResult run = RunBinary({"diagnose", log});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  for (const char* part :
       {"log of Megatron-LM: 3 of 4 lines with a step",
        "left out at the start, as warm-up: 1",
        "slow: step 4, 1.5 s, 1.50 times the median (line 5)"}) {
    INFO(part << "\n" << run.out);
    CHECK(absl::StrContains(run.out, part));
  }
  const Json report = Json::parse(RunBinary({"diagnose", log, "--json"}).out);
  CHECK(report["step_s"]["median"].get<double>() == Approx(1));
  CHECK(report["step_s"]["mean"].get<double>() == Approx(3.5 / 3));
  CHECK(report["warm_up"].size() == 1);
  const Json all =
      Json::parse(RunBinary({"diagnose", log, "--skip", "0", "--json"}).out);
  CHECK(all["step_s"]["most"].get<double>() == Approx(9));
  const std::string page = ReadFile(SourcePath("docs/diagnose.md")).value();
  for (const auto& item : report.items()) {
    INFO(item.key());
    CHECK(absl::StrContains(page, absl::StrCat("`", item.key(), "`")));
  }
  for (const char* flag :
       {"--svg", "--html", "--timeline", "--forward", "--pp", "--ideal"}) {
    INFO(flag);
    const BinaryResult refused =
        RunBinary({"diagnose", log, flag,
                   std::string(flag) == "--pp" ? "2" : folder.Path("x")});
    CHECK(refused.exit_code == 2);
    CHECK(absl::StrContains(refused.err, flag));
  }
  // A comma in the first line, and no step in the first megabyte.
  std::string late = "WARNING: a, b\n";
  while (late.size() < 1 << 20) late += "still building the dataset\n";
  CHECK(RunBinary(
            {"diagnose", folder.Write("late.log", late + TrainingLogText())})
            .exit_code == 0);
  // One line of torchtitan has no time of a step; a restart is told before.
  const std::string line =
      "step: 2  loss: 7.0  memory: 1.00GiB(1%)  tps: 100  mfu: 1.00%\n";
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--skip", "0"}}) {
    std::vector<std::string> words = {
        "diagnose",
        folder.Write(
            "one.log",
            absl::StrCat(absl::StrReplaceAll(line, {{": 2", ": 3"}}), line))};
    words.insert(words.end(), more.begin(), more.end());
    const BinaryResult one = RunBinary(words);
    CHECK(one.exit_code == 2);
    CHECK(absl::StrContains(one.err,
                            "one.log: no step has a time: at least two lines"));
    CHECK(absl::StrContains(one.err, "step 2 follows step 3"));
  }
  const BinaryResult none =
      RunBinary({"diagnose", folder.Write("notes.txt", "hello\n")});
  CHECK(none.exit_code == 2);
  CHECK(absl::StrContains(none.err, "notes.txt: reports no step; allowed: "));
}

TEST_CASE("diagnose: what it refuses", "[cli]") {
  const TemporaryFolder folder;
  const std::string foreign =
      folder.Write("foreign.json",
                   "{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"a\", "
                   "\"ts\": 1, \"dur\": 1, \"pid\": 1, \"tid\": 1}]}");
  const std::string empty = folder.Write("empty.csv", "");
  const BinaryResult other = RunBinary({"diagnose", foreign});
  CHECK(other.exit_code == 2);
  CHECK(absl::StrContains(other.err, "no region is a forward or a backward"));
  CHECK(RunBinary({"diagnose", empty}).exit_code == 2);
  const BinaryResult pattern =
      RunBinary({"diagnose", Job("ST"), "--forward", "fwd"});
  CHECK(pattern.exit_code == 2);
  CHECK(absl::StrContains(pattern.err, "--forward: fwd"));
  // A folder whose only trace would be overwritten.
  CHECK(RunBinary({"diagnose", folder.Path(""), "--timeline", foreign})
            .exit_code == 2);
  CHECK(absl::StrContains(ReadFile(foreign).value(), "traceEvents"));
}

}  // namespace
}  // namespace pipewright::diagnose_test
