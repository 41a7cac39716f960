// What the command line says about memory: keys, verdicts, exit codes.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::memory_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using Arguments = std::vector<std::string>;

BinaryResult Llama(const Arguments& more) {
  Arguments arguments = {"simulate",  "--model",
                         "llama3-8b", "--schedule",
                         "1f1b",      "--pp",
                         "4",         "--tp",
                         "2",         "--microbatches",
                         "8",         "--engine",
                         "fast",      "--forward",
                         "1ms",       "--backward-input",
                         "1ms",       "--backward-weight",
                         "1ms"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunBinary(arguments);
}

TEST_CASE("cli: memory of every rank is reported with its cause",
          "[cli][memory]") {
  const BinaryResult run = Llama({"--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  CHECK(!report.contains("fits"));
  REQUIRE(report["peak_memory_bytes"].size() == 4);
  for (int rank = 0; rank < 4; ++rank) {
    const Json& row = report["memory"]["ranks"][rank];
    CHECK(row["peak_bytes"] == report["peak_memory_bytes"][rank]);
    CHECK(row["cause"]["pass"].get<std::string>().substr(0, 2) == "BW");
  }
  // Fewer microbatches are in flight on later ranks.
  CHECK(report["peak_memory_bytes"][0] > report["peak_memory_bytes"][2]);
}

TEST_CASE("cli: a run that does not fit is exit 3 and gets advice",
          "[cli][memory]") {
  const BinaryResult fits = Llama({"--memory", "74GiB", "--json"});
  CHECK(fits.exit_code == 0);
  CHECK(Json::parse(fits.out)["fits"] == true);
  const BinaryResult over = Llama({"--memory", "30GiB", "--json"});
  CHECK(over.exit_code == 3);
  for (const char* part :
       {"rank 0 needs", "of 30 GiB", "does not fit", "stage 0",
        "what would help most", "strategy.tp 4", "strategy.recompute full"}) {
    INFO(over.err);
    CHECK(absl::StrContains(over.err, part));
  }
  // The report is printed all the same.
  const Json report = Json::parse(over.out);
  CHECK(report["fits"] == false);
  const Json& changes = report["memory"]["changes"];
  REQUIRE(changes.size() > 1);
  REQUIRE(changes.size() <= 3);
  for (size_t index = 0; index < changes.size(); ++index) {
    const double needed = changes[index]["needed_bytes"].get<double>();
    CHECK(changes[index]["fits"] == (needed <= 30 * 1073741824.0));
    if (index == 0) continue;
    CHECK(changes[index]["saved_bytes"].get<double>() <=
          changes[index - 1]["saved_bytes"].get<double>());
  }
  // What is advised is what comes out.
  const BinaryResult helped =
      Llama({"--memory", "30GiB", "--recompute", "full", "--json"});
  const Json& full =
      *std::find_if(changes.begin(), changes.end(), [](const Json& change) {
        return change["change"] == "strategy.recompute full";
      });
  const Json helped_memory = Json::parse(helped.out)["memory"];
  const int worst = helped_memory["worst_rank"].get<int>();
  CHECK(helped_memory["ranks"][worst]["needed_bytes"] ==
        full["needed_bytes"].get<double>());
}

TEST_CASE("cli: context and fragmentation decide what fits", "[cli][memory]") {
  const Json report = Json::parse(
      Llama({"--memory-context", "0B", "--fragmentation", "0.5", "--json"})
          .out);
  const Json& row = report["memory"]["ranks"][0];
  CHECK(row["context"] == 0);
  CHECK(row["needed_bytes"].get<double>() ==
        Approx(1.5 * row["peak_bytes"].get<double>()));
}

TEST_CASE("cli: a system's memory is the limit", "[cli][memory]") {
  const BinaryResult run = Llama({"--system", "dgx-h100", "--json"});
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  CHECK(report["fits"] == true);
  CHECK(report["memory"]["limit_source"] == "H100 SXM5 80GB");
}

TEST_CASE("cli: check weighs a file's order with a model", "[cli][memory]") {
  const TemporaryFolder folder;
  const std::string schedule = folder.Path("order.pws");
  const std::string config = folder.Path("model.yaml");
  REQUIRE(WriteFile(schedule,
                    "pipewright-schedule 1\n"
                    "pp 2 vpp 1 microbatches 2\n"
                    "0: F0 F1 BW0 BW1\n1: F0 BW0 F1 BW1\n")
              .ok());
  REQUIRE(WriteFile(config,
                    "model: {preset: llama3-8b}\n"
                    "strategy: {tp: 4}\n")
              .ok());
  const auto check = [&](const Arguments& more) {
    Arguments arguments = {"check", schedule};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunBinary(arguments);
  };
  const BinaryResult fits =
      check({"--config", config, "--memory", "74GiB", "--json"});
  INFO(fits.err);
  CHECK(fits.exit_code == 0);
  CHECK(Json::parse(fits.out)["fits"] == true);
  const BinaryResult over = check({"--config", config, "--memory", "10GiB"});
  CHECK(over.exit_code == 3);
  CHECK(absl::StrContains(over.err, "does not fit"));
  CHECK(absl::StrContains(over.out, "rank 0 needs"));
  const BinaryResult bare = check({"--memory", "10GiB"});
  CHECK(bare.exit_code == 2);
  CHECK(absl::StrContains(bare.err, "needs a model"));
}

TEST_CASE("cli: the picture of memory needs a model", "[cli][memory]") {
  const TemporaryFolder folder;
  const std::string picture = folder.Path("memory.svg");
  CHECK(Llama({"--memory-svg", picture}).exit_code == 0);
  const auto content = ReadFile(picture);
  REQUIRE(content.ok());
  CHECK(absl::StartsWith(*content, "<svg "));
  CHECK(absl::StrContains(*content, "class=\"memory\""));
  const BinaryResult bare =
      RunBinary({"simulate", "--schedule", "1f1b", "--pp", "2",
                 "--microbatches", "2", "--memory-svg", picture});
  CHECK(bare.exit_code == 2);
  CHECK(absl::StrContains(bare.err, "with a model"));
}

}  // namespace
}  // namespace pipewright::memory_test
