// The runtime against the simulating engines: the same rules, another clock.
#include "execute/run/run_threads.h"
#include "execute/transport/steady_seconds.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "execute/run/fixed_worker.h"
#include "sim/engine/fast_engine.h"
#include "sim/program/lower.h"
#include "sim/schedule/registry.h"
#include "tests/support/random_program.h"

namespace pipewright::run_threads_test {
namespace {

absl::StatusOr<std::unique_ptr<Worker>> Fixed(Address) {
  return std::make_unique<FixedWorker>();
}

// If transfers hold their ranks, one of a gradient has the name of the B or BW
// that came to it last, and that may be either if both come at once.
uint64_t NameOf(const TraceOp& op) {
  const bool passes = op.kind == OpKind::kPass;
  const Pass pass = op.pass.WithJoint(false);
  if (passes || pass.kind() != PassKind::kBackwardFull) return pass.bits();
  return Pass(PassKind::kBackwardInput, pass.microbatch(), pass.chunk(),
              pass.slice(), pass.direction())
      .bits();
}

// Whatever order ranks were told in.
std::vector<TraceOp> Sorted(std::vector<TraceOp> ops) {
  const auto key = [](const TraceOp& op) {
    return std::make_tuple(op.replica, op.rank, static_cast<int>(op.kind),
                           op.iteration, op.start_s, op.end_s, op.channel,
                           op.side_op, NameOf(op));
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
        CHECK(mine.late_load_s ==
              Approx(theirs[rank].late_load_s).epsilon(1e-9));
        CHECK(mine.late_free_s ==
              Approx(theirs[rank].late_free_s).epsilon(1e-9));
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
                              a.side_op, NameOf(a)) ==
              std::make_tuple(b.start_s, b.end_s, b.bytes, b.kind, b.stream,
                              b.joint, b.rank, b.iteration, b.stage, b.channel,
                              b.side_op, NameOf(b)));
    }
  }
  CHECK(compared > 300);
  CHECK(deadlocks > 3);
}

absl::StatusOr<Program> SmallProgram() {
  ScheduleParams params;
  params.pp = 2;
  params.microbatches = 2;
  absl::StatusOr<Schedule> built = BuildSchedule("1f1b", params);
  if (!built.ok()) return built.status();
  LowerOptions options;
  options.costs = PassCosts::Uniform(1, 2, {});
  return Lower(std::make_shared<const Schedule>(*std::move(built)), options);
}

TEST_CASE("execute: the paced clock tells when it was late", "[execute]") {
  double late_s = 0;
  // It is 10 s by this clock.
  const std::unique_ptr<Clock> clock =
      MakePacedClock(SteadySeconds() - 10, &late_s);
  CHECK(clock->Begin(4) >= 10);
  CHECK(clock->End(4, 2) >= 10);
  CHECK(late_s >= 4);
  const double soon_s = clock->Now() + 1e-3;
  CHECK(clock->Begin(soon_s) >= soon_s);
}

TEST_CASE("execute: warming up is no part of a step", "[execute]") {
  const absl::StatusOr<Program> program = SmallProgram();
  REQUIRE(program.ok());
  std::atomic<double> made_s{0};
  const auto make_worker =
      [&](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
    if (self.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      made_s = SteadySeconds();
    }
    return std::make_unique<FixedWorker>();
  };
  const absl::StatusOr<ExecutedRun> run =
      RunThreads(*program, make_worker, {.clock = ClockKind::kReal});
  const double all_s = SteadySeconds() - made_s;
  REQUIRE(run.ok());
  CHECK(run->summary.iteration_end_s.front() <= all_s);
}

class ThrowingWorker : public FixedWorker {
 public:
  explicit ThrowingWorker(bool memory) : memory_(memory) {}
  absl::StatusOr<double> RunPass(Pass, int) override {
    if (memory_) throw std::bad_alloc();
    throw std::runtime_error("a kernel has thrown");
  }

 private:
  const bool memory_;
};

TEST_CASE("execute: what a worker throws is an error of the run", "[execute]") {
  const absl::StatusOr<Program> program = SmallProgram();
  REQUIRE(program.ok());
  for (const bool memory : {false, true}) {
    const auto make_worker =
        [&](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
      if (self.rank == 0) return std::make_unique<FixedWorker>();
      return std::make_unique<ThrowingWorker>(memory);
    };
    const absl::Status status =
        RunThreads(*program, make_worker, {.timeout_s = 3600}).status();
    INFO(status);
    CHECK(status == absl::InternalError(memory ? "out of memory"
                                               : "a kernel has thrown"));
  }
  const absl::Status status =
      RunThreads(*program,
                 [](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
                   if (self.rank == 1) throw std::bad_alloc();
                   return std::make_unique<FixedWorker>();
                 },
                 {.timeout_s = 3600})
          .status();
  INFO(status);
  CHECK(status == absl::InternalError("out of memory"));
}

}  // namespace
}  // namespace pipewright::run_threads_test
