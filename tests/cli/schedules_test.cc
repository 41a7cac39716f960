// What `list schedules` says of the registered schedules and their claims.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/schedule/registry.h"
#include "tests/support/json.h"
#include "tests/support/run_here.h"

namespace pipewright::schedules_test {
namespace {

using testing::BinaryResult;
using testing::RunHere;

// The lines of each schedule, its name and summary first, blanks taken off.
std::vector<std::vector<std::string>> Blocks(const std::string& text) {
  std::vector<std::vector<std::string>> blocks;
  const std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    if (line[0] != ' ') blocks.emplace_back();
    REQUIRE_FALSE(blocks.empty());
    blocks.back().emplace_back(absl::StripAsciiWhitespace(line));
  }
  return blocks;
}

TEST_CASE("schedules: list shows bounds and conditions of claims", "[cli]") {
  const BinaryResult text = RunHere({"list", "schedules"});
  const BinaryResult json = RunHere({"list", "schedules", "--json"});
  REQUIRE(text.exit_code == 0);
  REQUIRE(json.exit_code == 0);
  const auto rows = testing::Json::parse(json.out)["schedules"];
  const std::vector<std::vector<std::string>> blocks = Blocks(text.out);
  REQUIRE(rows.size() == AllSchedules().size());
  // The last line is of the parameter that every schedule takes.
  REQUIRE(blocks.size() == rows.size() + 1);
  int bounds = 0;
  for (size_t index = 0; index < rows.size(); ++index) {
    const ScheduleInfo& info = *AllSchedules()[index];
    const std::vector<std::string>& lines = blocks[index];
    INFO(info.name);
    CHECK(absl::StartsWith(lines[0], absl::StrCat(info.name, " ")));
    CHECK(absl::EndsWith(lines[0], absl::StrCat(" ", info.summary)));
    REQUIRE(lines.size() >= 2 + 2 * info.claims.size());
    CHECK(lines[1] == absl::StrCat("source: ", info.source));
    REQUIRE(rows[index]["claims"].size() == info.claims.size());
    for (size_t each = 0; each < info.claims.size(); ++each) {
      const Claim& claim = info.claims[each];
      const bool is_bound = claim.sense == Claim::Sense::kUpperBound;
      bounds += is_bound ? 1 : 0;
      CHECK(absl::EndsWith(
          lines[2 + 2 * each],
          absl::StrCat(is_bound ? ": at most " : ": ", claim.formula)));
      CHECK(lines[3 + 2 * each] == absl::StrCat("source: ", claim.source));
      CHECK(rows[index]["claims"][each]["sense"] ==
            (is_bound ? "at most" : "exact"));
    }
  }
  CHECK(bounds > 0);
}

// A replica is data-parallel; a bidirectional schedule has directions.
TEST_CASE("schedules: no summary calls a direction a replica", "[cli]") {
  for (const ScheduleInfo* info : AllSchedules()) {
    INFO(info->name);
    CHECK_FALSE(absl::StrContains(info->summary, "replica"));
  }
}

}  // namespace
}  // namespace pipewright::schedules_test
