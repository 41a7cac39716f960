// Orders and peaks against the reference schedulers' outputs in
// shared/oracle/schedules, where that folder is there.
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "tests/support/oracle.h"

namespace pipewright::testing {
namespace {

using Json = nlohmann::json;
using Match = std::pair<std::string, OwnParams>;

TEST_CASE("oracle: schedules of the zero-bubble repository", "[schedule]") {
  CheckFamilyA("1f1b", "1f1b");
  CheckFamilyA("vpp_v2", "interleaved-1f1b");
  CheckFamilyA("vpp_v4", "interleaved-1f1b");
  CheckFamilyA("zb_h1", "zb-h1");
  CheckFamilyA("zb_h1_quickstart", "zb-h1", {{"variant", "quick-start"}});
  CheckFamilyA("zb_h2", "zb-h2");
}

TEST_CASE("oracle: schedules of Megatron-LM", "[schedule]") {
  CheckFamilyB("megatron_1F1B",
               [](const Json& run) { return Match(run["schedule"], {}); });
  CheckFamilyB("megatron_interleaved", [](const Json& run) {
    return Match(
        "interleaved-1f1b",
        {{"rule", run["rule"] == "main_2026" ? "megatron" : "megatron-23.08"}});
  });
}

TEST_CASE("oracle: schedules of PyTorch", "[schedule]") {
  for (const char* name : {"GPipe", "Interleaved1F1B", "LoopedBFS"}) {
    CheckFamilyB(absl::StrCat("torch_", name),
                 [&](const Json&) { return Match(name, {}); });
  }
}

TEST_CASE("oracle: few or odd numbers of microbatches", "[schedule]") {
  CheckSmallMicrobatches("1f1b", "1f1b", 1);
  CheckSmallMicrobatches("vpp_v2", "interleaved-1f1b", 2);
}

}  // namespace
}  // namespace pipewright::testing
