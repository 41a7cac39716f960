// Ranks that run alone against all of them together.
#include "execute/replay.h"

#include <catch2/catch.hpp>
#include <memory>
#include <numeric>

#include "absl/strings/match.h"
#include "execute/fixed_worker.h"
#include "execute/training.h"
#include "sim/engine/fast_engine.h"
#include "tests/support/random_program.h"
#include "tests/support/small_training.h"

namespace pipewright {
namespace {

absl::StatusOr<std::unique_ptr<Worker>> Fixed(Address) {
  return std::make_unique<FixedWorker>();
}

std::vector<int> AllRanks(const Program& program) {
  std::vector<int> ranks(program.pp());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST_CASE("replay: with given durations the composed times equal fast",
          "[execute][replay]") {
  int compared = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, {});
    if (!made.ok()) continue;
    Program& program = made->program;
    program.until_steady = false;
    const absl::StatusOr<RunSummary> fast = RunFast(program, {});
    if (!fast.ok()) continue;
    INFO(made->about);
    for (const std::vector<int>& ranks :
         {AllRanks(program), std::vector<int>{program.pp() - 1}}) {
      const absl::StatusOr<ReplayedRun> run = Replay(
          program, Fixed,
          {.clock = ClockKind::kVirtual, .takes_given = true, .ranks = ranks});
      INFO(run.status());
      REQUIRE(run.ok());
      CHECK(run->composed.summary.iteration_end_s == fast->iteration_end_s);
      CHECK(run->passes == 1);
      CHECK(run->change_s == 0);
      const std::vector<RankTimes>& theirs =
          fast->times[fast->row_of_replica[0]];
      for (const ReplayedRank& each : run->ranks) {
        // The rank's own run, not only what was made of it.
        CHECK(each.times.first_start_s == theirs[each.rank].first_start_s);
        CHECK(each.times.last_end_s == theirs[each.rank].last_end_s);
      }
      for (int rank = 0; rank < program.pp(); ++rank) {
        const RankTimes& mine = run->composed.summary.times[0][rank];
        CHECK(mine.first_start_s == theirs[rank].first_start_s);
        CHECK(mine.last_end_s == theirs[rank].last_end_s);
      }
    }
    ++compared;
  }
  CHECK(compared > 100);
}

}  // namespace
}  // namespace pipewright
