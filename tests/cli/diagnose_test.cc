// The verb diagnose as a user calls it: report, JSON with the keys that the
// documentation lists, pictures, exit codes.
#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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
}

TEST_CASE("diagnose: what it refuses", "[cli]") {
  const TemporaryFolder folder;
  const std::string foreign =
      folder.Write("foreign.json", "{\"traceEvents\": [{\"ph\": \"X\"}]}");
  const std::string empty = folder.Write("empty.csv", "");
  const BinaryResult other = RunBinary({"diagnose", foreign});
  CHECK(other.exit_code == 2);
  CHECK(absl::StrContains(other.err, "not written by pipewright"));
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
