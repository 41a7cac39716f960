// A seed gives the same run from version to version: these numbers are those
// of commit f784b2d, with chunks, directions and slices in the passes.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::seed_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;

TEST_CASE("seed: it draws the same whatever a pass is packed into", "[cli]") {
  const std::vector<std::pair<std::vector<std::string>, double>> runs = {
      {{"--schedule", "interleaved-1f1b"}, 0.10478703209240135},
      {{"--schedule", "dualpipe"}, 0.09690084813172807},
      {{"--schedule", "seq1f1b", "--slices", "2"}, 0.10648088311229868},
  };
  for (const auto& [schedule, iteration_s] : runs) {
    std::vector<std::string> words = {"simulate"};
    words.insert(words.end(), schedule.begin(), schedule.end());
    for (const char* word :
         {"--pp", "4", "--microbatches", "8", "--forward", "3ms",
          "--backward-input", "5ms", "--backward-weight", "3ms", "--engine",
          "fast", "--jitter", "3%", "--seed", "1", "--json"}) {
      words.emplace_back(word);
    }
    const BinaryResult result = RunBinary(words);
    INFO(schedule[1] << " " << result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(testing::Json::parse(result.out)["iteration_s"].get<double>() ==
          Approx(iteration_s).epsilon(1e-12));
  }
}

}  // namespace
}  // namespace pipewright::seed_test
