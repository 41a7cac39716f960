#include "sim/base/memory_claim.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace pipewright::memory_claim_test {
namespace {

TEST_CASE("memory: claims of one thing add up, part by part", "[base]") {
  // Two processes of one machine, one of another; the second has a limit of
  // its own.
  const std::vector<MemoryNeed> needs = SumClaims(
      {{{"the machine", "a", 100, {30, 10}}},
       {{"the machine", "a", 90, {30, 60}}, {"ulimit -v", "7", 50, {30, 60}}},
       {{"the machine", "b", 100, {5, 1}}}});
  REQUIRE(needs.size() == 3);
  CHECK(needs[0].bytes == std::vector<double>{60, 70});
  CHECK(needs[0].most_bytes() == 70);
  CHECK(needs[0].WorstPart() == 1);
  CHECK(needs[0].free_bytes == 90);
  CHECK(needs[0].processes == 2);
  CHECK(needs[1].of == "ulimit -v");
  CHECK(needs[1].processes == 1);
  CHECK(needs[2].bytes == std::vector<double>{5, 1});
  CHECK(needs[2].WorstPart() == 0);
  CHECK(SumClaims({}).empty());
}

TEST_CASE("memory: what fits into nine tenths fits", "[base]") {
  CHECK(CheckMemory("it", 90, 100, "here", "less").ok());
  const absl::Status more =
      CheckMemory("two ranks", 3.0 * (1 << 30), 2.0 * (1 << 30), "the machine",
                  "a smaller model");
  CHECK(more.code() == absl::StatusCode::kResourceExhausted);
  CHECK(more.message() ==
        "two ranks need 3 GiB; usable on the machine: 1.8 GiB; allowed: a "
        "smaller model");
}

}  // namespace
}  // namespace pipewright::memory_claim_test
