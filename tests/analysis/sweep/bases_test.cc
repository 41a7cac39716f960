// Sweeps of several bases in one file: the best of one of them, and figures.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/run_binary.h"

namespace pipewright::bases_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

// Forwards of `milliseconds`, on 2 and 4 ranks.
BinaryResult Sweep(const std::string& path, int milliseconds,
                   const std::string& schedule) {
  return RunBinary({"sweep", "--schedule", schedule, "--microbatches", "8",
                    "--forward", absl::StrCat(milliseconds, "ms"), "--backward",
                    "2ms", "--sweep", "strategy.pp=2,4", "-j", "1", "-o",
                    path});
}

Words LinesWith(const std::string& text, const std::string& words) {
  Words found;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StrContains(line, words)) found.emplace_back(line);
  }
  return found;
}

TEST_CASE("sweep: the best are those of this call", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  const BinaryResult fast = Sweep(path, 1, "1f1b");
  REQUIRE(fast.exit_code == 0);
  const BinaryResult slow = Sweep(path, 100, "1f1b");
  REQUIRE(slow.exit_code == 0);
  // 8 microbatches on 2 and 4 ranks of 102 ms, not of 3 ms.
  for (const char* ranks : {"2", "4"}) {
    const Words lines =
        LinesWith(slow.out, absl::StrCat("strategy.pp ", ranks));
    INFO(slow.out);
    REQUIRE(lines.size() == 1);
    CHECK(std::stod(lines[0]) > 0.8);
  }
  // Points with a row are still points of the call.
  const BinaryResult again = Sweep(path, 1, "1f1b");
  CHECK(LinesWith(again.out, "strategy.pp") ==
        LinesWith(fast.out, "strategy.pp"));
  CHECK(LinesWith(again.out, "strategy.pp").size() == 2);
}

TEST_CASE("plot: rows of several bases are told apart", "[sweep][plot]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  REQUIRE(Sweep(path, 1, "1f1b").exit_code == 0);
  const Words plot = {"plot", path,         "--x", "peak_activations.max",
                      "--y",  "iteration_s"};
  CHECK(RunBinary(plot).err.empty());
  REQUIRE(Sweep(path, 1, "gpipe").exit_code == 0);
  const BinaryResult both = RunBinary(plot);
  INFO(both.out << both.err);
  REQUIRE(both.exit_code == 0);
  CHECK_THAT(both.err, Catch::Contains("2 bases") &&
                           Catch::Contains("base 1 (schedule.name: 1f1b)") &&
                           Catch::Contains("base 2 (schedule.name: gpipe)"));
  CHECK(LinesWith(both.out, "base 1").size() == 2);
  CHECK(LinesWith(both.out, "base 2").size() == 2);
  const auto with = [&](const Words& more) {
    Words words = plot;
    words.insert(words.end(), more.begin(), more.end());
    return RunBinary(words);
  };
  const BinaryResult second = with({"--base", "2"});
  CHECK(second.exit_code == 0);
  CHECK(second.err.empty());
  CHECK(LinesWith(second.out, "gpipe").size() == 2);
  CHECK(LinesWith(second.out, "1f1b").empty());
  const BinaryResult none = with({"--base", "3"});
  CHECK(none.exit_code == 2);
  CHECK_THAT(none.err, Catch::Contains("--base: 3 is not allowed; allowed: 1 "
                                       "or 2"));
}

}  // namespace
}  // namespace pipewright::bases_test
