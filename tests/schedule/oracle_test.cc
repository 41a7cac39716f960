// Orders and peaks against what others' schedulers gave
// (tests/oracle/README.md).
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "tests/support/json.h"
#include "tests/support/oracle.h"

namespace pipewright::testing::oracle_test {
namespace {

using Match = std::pair<std::string, OwnParams>;

TEST_CASE("oracle: schedules of the zero-bubble repository", "[schedule]") {
  Compared compared = CheckFamilyA("1f1b", "1f1b");
  compared += CheckFamilyA("vpp_v2", "interleaved-1f1b");
  compared += CheckFamilyA("vpp_v4", "interleaved-1f1b");
  compared += CheckFamilyA("zb_h1", "zb-h1");
  compared +=
      CheckFamilyA("zb_h1_quickstart", "zb-h1", {{"variant", "quick-start"}});
  compared += CheckFamilyA("zb_h2", "zb-h2");
  SayCompared("zero-bubble repository", compared);
}

TEST_CASE("oracle: schedules of Megatron-LM", "[schedule]") {
  Compared compared = CheckFamilyB("megatron_1F1B", [](const Json& run) {
    return Match(run["schedule"], {});
  });
  compared += CheckFamilyB("megatron_interleaved", [](const Json& run) {
    return Match(
        "interleaved-1f1b",
        {{"rule", run["rule"] == "main_2026" ? "megatron" : "megatron-23.08"}});
  });
  SayCompared("Megatron-LM", compared);
}

TEST_CASE("oracle: schedules of PyTorch", "[schedule]") {
  Compared compared;
  for (const char* name : {"GPipe", "Interleaved1F1B", "LoopedBFS"}) {
    compared += CheckFamilyB(absl::StrCat("torch_", name),
                             [&](const Json&) { return Match(name, {}); });
  }
  SayCompared("PyTorch", compared);
}

TEST_CASE("oracle: few or odd numbers of microbatches", "[schedule]") {
  Compared compared = CheckSmallMicrobatches("1f1b", "1f1b", 1);
  compared += CheckSmallMicrobatches("vpp_v2", "interleaved-1f1b", 2);
  SayCompared("1f1b with few microbatches", compared);
}

}  // namespace
}  // namespace pipewright::testing::oracle_test
