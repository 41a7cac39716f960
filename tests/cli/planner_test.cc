// Planners as people call them: limits that cannot be met, what `list` says.
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::planner_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;

BinaryResult Simulate(const char* schedule, const char* limit) {
  return RunBinary({"simulate", "--schedule", schedule, "--pp", "4",
                    "--microbatches", "8", "--engine", "fast", "--json",
                    "--max-activations", limit});
}

TEST_CASE("cli: a limit that no plan meets is exit 3 and names the least",
          "[cli]") {
  const BinaryResult below = Simulate("zb-auto", "0.75");
  CHECK(below.exit_code == 3);
  // No report, so the refusal is the one object.
  const auto refusal = testing::Json::try_parse(below.out);
  REQUIRE(refusal.is_object());
  CHECK(refusal.size() == 1);
  CHECK(refusal["error"]["exit"] == 3);
  CHECK(refusal["error"]["field"] == "strategy.max_activations");
  CHECK(refusal["error"]["value"] == "0.75");
  CHECK(absl::StrContains(below.err,
                          "--max-activations: strategy.max_activations: 0.75 "
                          "cannot be met; the smallest limit that works with "
                          "schedule zb-auto is 1"));
  CHECK(Simulate("zb-auto", "1").exit_code == 0);

  const BinaryResult v = Simulate("zb-v", "3.9");
  CHECK(v.exit_code == 3);
  CHECK(absl::StrContains(v.err, "3.9 cannot be met"));
  CHECK(absl::StrContains(v.err, "schedule zb-v is 4"));
  const BinaryResult met = Simulate("zb-v", "4");
  REQUIRE(met.exit_code == 0);
  CHECK(testing::Json::parse(met.out)["fits"] == true);
}

TEST_CASE("cli: PyTorch's name stays handcrafted when costs are given",
          "[cli]") {
  const auto text = [](const char* name, const char* weight) {
    const BinaryResult run = RunBinary(
        {"schedule", name, "--pp", "4", "--microbatches", "8", "--forward",
         "3ms", "--backward-input", "2ms", "--backward-weight", weight});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return run.out;
  };
  CHECK(text("ScheduleZBVZeroBubble", "1ms") == text("zbvzerobubble", "4ms"));
  CHECK(text("zb-v", "1ms") != text("zb-v", "4ms"));
}

}  // namespace
}  // namespace pipewright::planner_test
