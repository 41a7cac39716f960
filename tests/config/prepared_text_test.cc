// A prepared run as text, held against a file. UPDATE_GOLDEN=1 in the
// environment rewrites it.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/strings/match.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"
#include "tests/support/prepare.h"

namespace pipewright::prepared_text_test {
namespace {

using testing::Prepared;

constexpr char kRun[] = R"(
model: {preset: gpt-tiny}
system: {preset: dgx-h100}
strategy: {pp: 2, dp: 2, microbatches: 4, data_parallel: zero1,
           optimizer: synchronised, max_activations: 3}
schedule: {name: zb-v}
costs: {uniform: {forward: 3ms, backward_input: 5ms, backward_weight: 7ms},
        held_until_weight: 0.5, seed: 3}
engine: fast
)";

TEST_CASE("prepare: all parts of a run as text", "[config]") {
  const PreparedRun run = Prepared(kRun);
  const std::string got = ToString(run);
  const std::string path = testing::SourcePath("tests/golden/prepared_run.txt");
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    REQUIRE(WriteFile(path, got).ok());
  }
  const absl::StatusOr<std::string> expected = ReadFile(path);
  REQUIRE(expected.ok());
  CHECK(got == *expected);
  for (const std::string& part :
       {ToString(run.network), ToString(run.costs), ToString(run.schedule),
        ToString(*run.memory)}) {
    INFO(part);
    CHECK(absl::StrContains(got, part));
  }
}

TEST_CASE("prepare: parts say what they were made of", "[config]") {
  const std::string delay =
      ToString(Prepared(std::string(testing::kBase) + testing::kTimes).network);
  CHECK(absl::StrContains(delay, "name: hop 1 s"));
  CHECK(!absl::StrContains(delay, "system"));
  const std::string stages = ToString(
      Prepared("schedule: {name: 1f1b}\nstrategy: {pp: 3, microbatches: 2}\n"
               "costs: {per_stage: {forward: [1s, 1s, 2s], backward_input: "
               "[1s, 1s, 1s], backward_weight: [0s, 0s, 1s]}}\n")
          .costs);
  CHECK(absl::StrContains(stages, "  stages 0 to 1: F 1 s, B 1 s"));
  CHECK(absl::StrContains(stages, "  stage 2: F 2 s, B 1 s, W 1 s"));
}

}  // namespace
}  // namespace pipewright::prepared_text_test
