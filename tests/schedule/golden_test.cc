// Small schedules as files: the text form, and a grid with a column a slot
// (F = B = W = 1). UPDATE_GOLDEN=1 in the environment rewrites them.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/text.h"
#include "tests/support/naive_order.h"
#include "tests/support/paths.h"

namespace pipewright::golden_test {
namespace {

struct Golden {
  std::string name;
  int pp, vpp, microbatches;
  std::map<std::string, std::string> own = {};
  std::string suffix = "";
  std::optional<double> max_activations = {};
  int slices = 1;
};

TEST_CASE("golden: small schedules", "[schedule]") {
  const std::vector<Golden> cases = {
      {"gpipe", 4, 1, 4},
      {"1f1b", 4, 1, 6},
      {"interleaved-1f1b", 2, 2, 4},
      {"interleaved-1f1b", 2, 2, 5, {{"group-size", "3"}}, "_group3"},
      {"interleaved-1f1b", 2, 2, 2, {{"rule", "megatron-23.08"}}, "_2308"},
      {"interleaved-1f1b", 2, 1, 4, {{"rule", "torch"}}, "_torch"},
      {"looped-bfs", 2, 2, 3},
      {"zb-h1", 3, 1, 6},
      {"zb-h1", 3, 1, 6, {{"variant", "quick-start"}}, "_quick_start"},
      {"zb-h2", 3, 1, 6},
      {"zb-auto", 3, 1, 6},
      {"zb-auto", 3, 1, 6, {}, "_1p", 3},
      {"optimal", 3, 1, 4, {{"steps", "0"}}, "", 3},
      {"optimal", 3, 1, 4, {{"backward", "full"}}, "_full"},
      {"optimal", 3, 1, 6, {{"recompute", "choose"}, {"steps", "0"}}, "_r", 1},
      {"optimal", 2, 2, 4, {{"placement", "v"}, {"steps", "0"}}, "_v", 2},
      {"zb-v", 3, 2, 6},
      {"zb-v", 3, 2, 6, {{"variant", "automatic"}}, "_automatic"},
      {"1f1b-v", 4, 2, 6},
      {"v-min", 4, 2, 6},
      {"v-half", 4, 2, 6},
      {"v-zb", 3, 2, 6},
      {"bitpipe", 4, 2, 4},
      {"bitpipe", 4, 2, 8, {{"concatenation", "figure"}}, "_figure"},
      {"chimera", 4, 1, 4},
      {"dualpipe", 4, 1, 8},
      {"dualpipe", 4, 1, 8, {{"pair", "dependencies"}}, "_dependencies"},
      {"dualpipe-v", 2, 2, 4},
      {"hanayo", 3, 4, 3},
      {"2bp", 3, 1, 4},
      {"2bp", 3, 1, 4, {{"base", "gpipe"}}, "_gpipe"},
      {"gis", 3, 2, 6},
      {"gis-h", 4, 2, 8},
      {"interleaved-zb", 3, 2, 6},
      {"po-f", 3, 3, 6},
      {"po-h", 3, 3, 6},
      {"seq1f1b", 3, 1, 3, {}, "", {}, 2},
      {"seq1f1b", 2, 2, 4, {}, "_chunks", {}, 2},
      {"slimpipe", 2, 2, 3, {}, "", {}, 4},
      {"terapipe", 3, 1, 2, {{"pieces", "4"}}},
      {"zeropp", 3, 2, 10},
      {"zeropp", 3, 1, 6, {{"unit", "3"}}, "_unit3"},
      {"pipedream-2bw", 3, 1, 4},
      {"pipeoptim", 3, 1, 4},
  };
  for (const Golden& golden : cases) {
    ScheduleParams params;
    params.pp = golden.pp;
    params.vpp = golden.vpp;
    params.microbatches = golden.microbatches;
    params.own = golden.own;
    params.max_activations = golden.max_activations;
    params.slices = golden.slices;
    const auto schedule = BuildSchedule(golden.name, params);
    REQUIRE(schedule.ok());
    const std::string got = absl::StrCat(ScheduleToText(*schedule), "\n",
                                         testing::SlotGrid(*schedule));
    const std::string path =
        absl::StrCat(testing::SourcePath("tests/golden/schedule_"), golden.name,
                     golden.suffix, ".txt");
    if (std::getenv("UPDATE_GOLDEN") != nullptr) {
      REQUIRE(WriteFile(path, got).ok());
    }
    const auto expected = ReadFile(path);
    INFO(path);
    REQUIRE(expected.ok());
    CHECK(got == *expected);
  }
}

}  // namespace
}  // namespace pipewright::golden_test
