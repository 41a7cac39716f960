// Options about what the Program can say: failing steps, shards, pipelines
// that are never flushed.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::program_options_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using Arguments = std::vector<std::string>;

// Passes of 1 s, no hops.
BinaryResult Run(const std::string& schedule, const Arguments& more) {
  Arguments arguments = {
      "simulate", "--schedule",        schedule, "--pp",
      "2",        "--microbatches",    "4",      "--p2p",
      "0",        "--forward",         "1s",     "--backward-input",
      "1s",       "--backward-weight", "1s",     "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunBinary(arguments);
}

TEST_CASE("cli: a step that fails is reported with its cost", "[cli]") {
  const Arguments validated = {"--optimizer", "post-validated",
                               "--optimizer-time", "0.5s"};
  Arguments failing = validated;
  failing.insert(failing.end(), {"--rollback-iterations", "1,3"});
  const BinaryResult run = Run("zb-h1", failing);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  REQUIRE(report["rollbacks"].size() == 2);
  CHECK(report["rollbacks"][0]["iteration"] == 1);
  CHECK(report["rollbacks"][1]["iteration"] == 3);
  // Rank 0 undoes, which takes what the step does unless told otherwise, and
  // steps again, behind at least a forward that is lost.
  CHECK(report["rollbacks"][1]["cost_s"].get<double>() >= 1 + 0.5 + 0.5);
  const Json good = Json::parse(Run("zb-h1", validated).out);
  CHECK(!good.contains("rollbacks"));
  CHECK(report["iteration_s"].get<double>() ==
        Approx(good["iteration_s"].get<double>()));

  const BinaryResult early = Run("zb-h1", {"--rollback-iterations", "1"});
  CHECK(early.exit_code == 2);
  CHECK(absl::StrContains(early.err, "strategy.rollback_iterations"));
  failing.insert(failing.end(), {"--iterations", "6"});
  const BinaryResult few = Run("zb-h1", failing);
  CHECK(few.exit_code == 2);
  CHECK(absl::StrContains(few.err, "at least 7"));
  const BinaryResult idle =
      Run("zb-h1", {"--validation", "released", "--rollback-time", "1s"});
  CHECK(absl::StrContains(idle.err, "strategy.validation has no effect"));
  CHECK(absl::StrContains(idle.err, "costs.rollback_time has no effect"));
}

TEST_CASE("cli: shards by pass, run or unit", "[cli]") {
  const Arguments sharded = {
      "--dp", "2", "--data-parallel", "fsdp", "--gradient-bytes", "1GB"};
  const BinaryResult passes = Run("1f1b", sharded);
  INFO(passes.err);
  REQUIRE(passes.exit_code == 0);
  CHECK(Json::parse(passes.out)["gradient_sync"] == "fsdp");
  Arguments units = sharded;
  units.insert(units.end(), {"--shard-blocks", "unit"});
  const BinaryResult none = Run("1f1b", units);
  CHECK(none.exit_code == 2);
  CHECK(absl::StrContains(none.err, "no units of microbatches"));
  CHECK(Run("looped-bfs", units).exit_code == 0);
  CHECK(absl::StrContains(Run("1f1b", {"--shard-blocks", "run"}).err,
                          "strategy.shard_blocks has no effect"));
}

TEST_CASE("cli: a pipeline that is never flushed says so", "[cli]") {
  const BinaryResult run = Run(
      "pipeoptim", {"--optimizer-time", "0.25s", "--prediction-time", "0.5s"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(!absl::StrContains(run.err, "has no effect"));
  const Json report = Json::parse(run.out);
  CHECK(report["iteration_s"].get<double>() == Approx(4 * (3 + 0.75)));
  CHECK(report["microbatches_per_s"].get<double>() == Approx(1 / 3.75));
  CHECK(report["staleness"] == std::vector<int>{1, 0});
  CHECK(report["weight_versions"] == std::vector<int>{2, 1});
  CHECK(!Json::parse(Run("1f1b", {}).out).contains("staleness"));
  const BinaryResult few = RunBinary({"simulate", "--schedule", "pipedream-2bw",
                                      "--pp", "4", "--microbatches", "3"});
  CHECK(few.exit_code == 2);
  CHECK(absl::StrContains(few.err, "at least 4"));
}

TEST_CASE("cli: a csv says that it cannot hold a pipeline without a flush",
          "[cli]") {
  for (const char* format : {"csv", "torch-csv"}) {
    const BinaryResult run =
        RunBinary({"schedule", "pipeoptim", "--pp", "2", "--microbatches", "4",
                   "--format", format});
    CHECK(run.exit_code == 0);
    CHECK(absl::StrContains(run.err, "has no update_every 1"));
  }
  const BinaryResult text =
      RunBinary({"schedule", "pipeoptim", "--pp", "2", "--microbatches", "4"});
  CHECK(absl::StrContains(text.out, "update_every 1"));
  CHECK(!absl::StrContains(text.err, "update_every"));
}

}  // namespace
}  // namespace pipewright::program_options_test
