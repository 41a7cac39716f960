// One global batch: what follows from it, and batches that do not divide.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/prepare.h"
#include "tests/support/run_here.h"

namespace pipewright::prepare_batch_test {
namespace {

using testing::BinaryResult;
using testing::Prepared;
using testing::PrepareText;
using testing::RunHere;

std::string BatchRun(const std::string& strategy, const std::string& more) {
  return absl::StrCat(
      "schedule: {name: 1f1b}\nmodel: {preset: gpt-tiny}\nstrategy: {",
      strategy, "}\ncosts: {uniform: {forward: 3s, backward_input: 5s, ",
      "backward_weight: 7s}}\nengine: fast\n", more);
}

TEST_CASE("batch: replicas follow from the devices, microbatches from them",
          "[config]") {
  struct Row {
    std::string strategy;
    std::string system;
    int dp;
    int microbatches;
  };
  const std::string one = "system: {preset: dgx-h100, nodes: 1}\n";
  const std::string two = "system: {preset: dgx-h100, nodes: 2}\n";
  // Of gpt-tiny a sample has 128 tokens.
  const std::vector<Row> table = {
      {"pp: 2, global_batch: 32", "", 1, 32},
      {"pp: 2, global_batch: 32", "system: {preset: dgx-h100}\n", 4, 8},
      {"pp: 2, global_batch: 32", one, 4, 8},
      {"pp: 2, global_batch: 32", two, 8, 4},
      {"pp: 2, tp: 2, global_batch: 32", one, 2, 16},
      {"pp: 2, dp: 2, global_batch: 32", one, 2, 16},
      {"pp: 2, dp: 2, microbatch_size: 4, global_batch: 32", one, 2, 4},
      {"pp: 2, global_batch: 32, microbatches: 8", one, 4, 8},
      {"pp: 2, dp: 2, global_batch: 4096tokens", one, 2, 16},
      {"pp: 2, dp: 2, global_batch: 4.096 Ktokens", one, 2, 16},
      {"pp: 2, dp: 2, global_batch: 4Kitokens", one, 2, 16},
      {"pp: 2, dp: 2, sequence: 64, global_batch: 4Kitokens", one, 2, 32},
      {"pp: 2, dp: 1, global_batch: 0.256Mtokens", "", 1, 2000},
  };
  for (const Row& row : table) {
    INFO(row.strategy << " " << row.system);
    const PreparedRun run = Prepared(BatchRun(row.strategy, row.system));
    CHECK(run.config.strategy.dp == row.dp);
    CHECK(run.config.strategy.microbatches == row.microbatches);
    const int size = run.config.strategy.microbatch_size.value_or(1);
    const double sequence = run.config.strategy.sequence.value_or(128);
    CHECK(run.tokens == sequence * size * row.dp * row.microbatches);
  }
}

TEST_CASE("batch: it equals a run whose sizes are given", "[config]") {
  const std::string system = "system: {preset: dgx-h100, nodes: 1}\n";
  const PreparedRun follows =
      Prepared(BatchRun("pp: 2, global_batch: 32", system));
  const PreparedRun given =
      Prepared(BatchRun("pp: 2, dp: 4, microbatches: 8", system));
  // All but the field itself, and that the nodes do nothing where dp is given.
  const std::string idle =
      "run.yaml:6: system.nodes has no effect while all ranks are on one node";
  CHECK(follows.warnings.empty());
  CHECK(given.warnings == std::vector<std::string>{idle});
  CHECK(absl::StrReplaceAll(ToString(follows),
                            {{"  strategy.global_batch: 32\n", ""}}) ==
        absl::StrReplaceAll(ToString(given),
                            {{absl::StrCat("warnings\n  ", idle, "\n"), ""}}));
}

TEST_CASE("batch: one that does not divide names the nearest that do",
          "[config]") {
  struct Row {
    std::string strategy;
    std::vector<const char*> parts;
  };
  const std::vector<Row> table = {
      {"pp: 2, global_batch: 33",
       {"run.yaml:3: strategy.global_batch: 33 is not allowed",
        "multiples of microbatch_size * dp = 1 * 4 = 4; nearest: 32, 36"}},
      {"pp: 2, microbatch_size: 2, global_batch: 7", {"= 8; nearest: 8"}},
      {"pp: 2, global_batch: 4Ktokens",
       {"dp * sequence = 1 * 4 * 128 = 512tokens; nearest: 3584tokens, "
        "4096tokens"}},
      {"pp: 2, global_batch: 32, microbatches: 9",
       {"strategy.microbatches: 9 is not allowed; allowed: 8, which is "
        "strategy.global_batch 32 over microbatch_size * dp = 1 * 4"}},
      {"pp: 3, global_batch: 32",
       {"system.nodes: 1 is not allowed", "nearest products: 2, 4"}},
      {"pp: 16, global_batch: 32", {"system.nodes: 1 is not allowed"}},
  };
  for (const Row& row : table) {
    INFO(row.strategy);
    const absl::Status status =
        PrepareText(
            BatchRun(row.strategy, "system: {preset: dgx-h100, nodes: 1}\n"))
            .status();
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    for (const char* part : row.parts) {
      INFO(part);
      CHECK(absl::StrContains(status.message(), part));
    }
  }
}

TEST_CASE("batch: what is no amount is refused", "[config]") {
  for (const char* value :
       {"0", "-4", "4.5", "x", "4tokens x", "itokens", "4itokens", "4Ptokens",
        "0tokens", "1e30tokens", "1e16tokens", "99999999999", "0.0001Ktokens",
        "nantokens", "inftokens"}) {
    INFO(value);
    const absl::Status status =
        PrepareText(
            BatchRun(absl::StrCat("pp: 2, global_batch: \"", value, "\""), ""))
            .status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), "strategy.global_batch"));
  }
  const absl::Status status =
      PrepareText(
          "schedule: {name: 1f1b}\nstrategy: {pp: 2, global_batch: 4Ktokens}\n")
          .status();
  CHECK(absl::StrContains(status.message(), "strategy.sequence: missing"));
}

TEST_CASE("batch: a schedule file has to agree", "[config]") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.Write(
      "a.pws",
      "pipewright-schedule 1\n"
      "pp 1 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
      "0: F0 BW0 F1 BW1\n");
  CHECK(RunHere({"simulate", "--schedule", file, "--dp", "3", "--global-batch",
                 "6", "--engine", "fast"})
            .exit_code == 0);
  const BinaryResult run = RunHere(
      {"simulate", "--schedule", file, "--dp", "3", "--global-batch", "12"});
  CHECK(run.exit_code == 2);
  CHECK(absl::StrContains(run.err, "strategy.microbatches: 2 is not allowed"));
}

}  // namespace
}  // namespace pipewright::prepare_batch_test
