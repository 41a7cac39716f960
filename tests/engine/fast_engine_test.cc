// fast = the naive reference engine, to the last bit.
#include <catch2/catch.hpp>
#include <memory>

#include "sim/engine/engine.h"
#include "sim/engine/fast_engine.h"
#include "tests/support/random_program.h"
#include "tests/support/reference_engine.h"
#include "tests/support/rounds.h"

namespace pipewright::fast_engine_test {
namespace {

using testing::Rounds;

void CheckEqual(const RunSummary& fast, const RunSummary& reference) {
  REQUIRE(fast.row_of_replica.size() == reference.row_of_replica.size());
  CHECK(fast.iteration_end_s == reference.iteration_end_s);
  for (size_t replica = 0; replica < fast.row_of_replica.size(); ++replica) {
    const std::vector<RankTimes>& mine =
        fast.times[fast.row_of_replica[replica]];
    const std::vector<RankTimes>& theirs = reference.times[replica];
    REQUIRE(mine.size() == theirs.size());
    for (size_t rank = 0; rank < mine.size(); ++rank) {
      INFO("replica " << replica << " rank " << rank);
      CHECK(mine[rank].first_start_s == theirs[rank].first_start_s);
      CHECK(mine[rank].last_end_s == theirs[rank].last_end_s);
      CHECK(mine[rank].busy_s == theirs[rank].busy_s);
    }
  }
}

TEST_CASE("engine: fast equals the reference on random programs", "[engine]") {
  int compared = 0;
  int hooked = 0;
  int false_starts = 0;
  int overlaps = 0;
  int deadlocks = 0;
  const uint32_t seeds = Rounds(3000);
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, {});
    if (!made.ok()) {  // sizes that the schedule refuses
      INFO(seed << " " << made.status());
      REQUIRE(made.status().code() != absl::StatusCode::kInternal);
      continue;
    }
    INFO(made->about);
    const absl::StatusOr<RunSummary> fast = RunFast(made->program, {});
    const absl::StatusOr<RunSummary> reference = RunReference(made->program);
    if (!fast.ok()) INFO(fast.status());
    REQUIRE(fast.ok() == reference.ok());
    if (fast.ok()) {
      CheckEqual(*fast, *reference);
      ++compared;
      const Program& program = made->program;
      false_starts += program.false_starts.empty() ? 0 : 1;
      for (const RankProgram& rank : program.ranks) {
        if (rank.hooks.empty()) continue;
        ++hooked;
        break;
      }
      overlaps += program.ranks[0].later_start > 0 ? 1 : 0;
    } else {
      CHECK(fast.status().code() == absl::StatusCode::kFailedPrecondition);
      ++deadlocks;
    }
  }
  // Most seeds make a program, and holding rules make some of them deadlock.
  CHECK(compared > Rounds(1500));
  CHECK(hooked > Rounds(1000));
  CHECK(false_starts > Rounds(200));
  CHECK(overlaps > Rounds(200));
  CHECK(deadlocks > Rounds(20));
}

}  // namespace
}  // namespace pipewright::fast_engine_test
