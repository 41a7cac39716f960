// The runtime against the simulating engines: the same rules, another clock.
#include "execute/run_threads.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <tuple>

#include "execute/fixed_worker.h"
#include "sim/engine/fast_engine.h"
#include "tests/support/random_program.h"

namespace pipewright {
namespace {

absl::StatusOr<std::unique_ptr<Worker>> Fixed(Address) {
  return std::make_unique<FixedWorker>();
}

// Whatever order ranks were told in.
std::vector<TraceOp> Sorted(std::vector<TraceOp> ops) {
  const auto key = [](const TraceOp& op) {
    return std::make_tuple(op.replica, op.rank, static_cast<int>(op.kind),
                           op.iteration, op.start_s, op.end_s, op.channel,
                           op.side_op, op.pass.WithJoint(false).bits());
  };
  std::sort(ops.begin(), ops.end(), [&](const TraceOp& a, const TraceOp& b) {
    return key(a) < key(b);
  });
  return ops;
}

TEST_CASE("execute: virtual time with given durations equals fast",
          "[execute]") {
  int compared = 0;
  int deadlocks = 0;
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, {});
    if (!made.ok()) continue;
    INFO(made->about);
    made->program.until_steady = false;
    FullTrace trace;
    const absl::StatusOr<RunSummary> fast =
        RunFast(made->program, {.trace = &trace});
    const absl::StatusOr<ExecutedRun> run =
        RunThreads(made->program, Fixed, {.takes_given = true, .trace = true});
    if (!run.ok()) INFO(run.status());
    REQUIRE(fast.ok() == run.ok());
    if (!fast.ok()) {
      CHECK(run.status().code() == absl::StatusCode::kFailedPrecondition);
      ++deadlocks;
      continue;
    }
    ++compared;
    CHECK(run->summary.iteration_end_s == fast->iteration_end_s);
    for (size_t replica = 0; replica < fast->row_of_replica.size(); ++replica) {
      const std::vector<RankTimes>& theirs =
          fast->times[fast->row_of_replica[replica]];
      for (size_t rank = 0; rank < theirs.size(); ++rank) {
        const RankTimes& mine = run->summary.times[replica][rank];
        CHECK(mine.first_start_s == theirs[rank].first_start_s);
        CHECK(mine.last_end_s == theirs[rank].last_end_s);
        CHECK(mine.busy_s == Approx(theirs[rank].busy_s).epsilon(1e-9));
      }
    }
    if (fast->times.size() != fast->row_of_replica.size()) continue;
    const std::vector<TraceOp> mine = Sorted(run->ops);
    const std::vector<TraceOp> theirs = Sorted(trace.ops());
    REQUIRE(mine.size() == theirs.size());
    for (size_t index = 0; index < mine.size(); ++index) {
      const TraceOp& a = mine[index];
      const TraceOp& b = theirs[index];

      REQUIRE(std::make_tuple(a.start_s, a.end_s, a.bytes, a.kind, a.stream,
                              a.joint, a.rank, a.iteration, a.stage, a.channel,
                              a.side_op, a.pass.WithJoint(false).bits()) ==
              std::make_tuple(b.start_s, b.end_s, b.bytes, b.kind, b.stream,
                              b.joint, b.rank, b.iteration, b.stage, b.channel,
                              b.side_op, b.pass.WithJoint(false).bits()));
    }
  }
  CHECK(compared > 300);
  CHECK(deadlocks > 3);
}

}  // namespace
}  // namespace pipewright
