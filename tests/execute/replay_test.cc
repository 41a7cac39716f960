// Ranks that run alone against all of them together.
#include "execute/run/replay.h"

#include <catch2/catch.hpp>
#include <memory>
#include <numeric>

#include "absl/strings/match.h"
#include "execute/run/fixed_worker.h"
#include "execute/train/training.h"
#include "sim/base/status.h"
#include "sim/engine/fast_engine.h"
#include "tests/support/random_program.h"
#include "tests/support/random_schedule.h"
#include "tests/support/small_training.h"

namespace pipewright::replay_test {
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

// A worker whose passes take other times than the program says, each its own.
class OddWorker : public FixedWorker {
 public:
  explicit OddWorker(int rank) : rank_(rank) {}
  absl::StatusOr<double> RunPass(Pass pass, int stage) override {
    return 1.0 + 0.25 * rank_ + 0.125 * pass.microbatch() + 0.5 * stage;
  }
  absl::StatusOr<double> RunSideOp(int32_t side_op, const Start&) override {
    return 2.0 + 0.5 * side_op;
  }

 private:
  const int rank_;
};

TEST_CASE("replay: all ranks alone give the times of all together",
          "[execute][replay]") {
  const MakeWorker odd = [](Address self) {
    return std::make_unique<OddWorker>(self.rank);
  };
  for (const char* schedule : {"1f1b", "zb-h1", "zb-v", "dualpipe"}) {
    for (const WaitRule rule : {WaitRule::kBuffered, WaitRule::kRendezvous}) {
      INFO(schedule << " " << WaitRuleName(rule));
      const absl::StatusOr<testing::SmallTraining> training =
          testing::MakeSmallTraining(schedule, 4, 1, rule, 3);
      REQUIRE(training.ok());
      const Program& program = training->program;
      const absl::StatusOr<ExecutedRun> together =
          RunThreads(program, odd, {.clock = ClockKind::kVirtual});
      if (!together.ok()) continue;  // deadlocks under this rule
      const absl::StatusOr<ReplayedRun> alone =
          Replay(program, odd,
                 {.clock = ClockKind::kVirtual, .ranks = AllRanks(program)});
      REQUIRE(alone.ok());
      CHECK(alone->composed.summary.iteration_end_s ==
            together->summary.iteration_end_s);
      // One rank alone leaves the others to the program.
      const absl::StatusOr<ReplayedRun> one =
          Replay(program, odd, {.clock = ClockKind::kVirtual, .ranks = {1}});
      REQUIRE(one.ok());
      CHECK(one->composed.summary.iteration_end_s !=
            together->summary.iteration_end_s);
    }
  }
}

absl::StatusOr<testing::SmallTraining> Training(double pass_s) {
  PW_ASSIGN_OR_RETURN(
      testing::SmallTraining training,
      testing::MakeSmallTraining("zb-h1", 4, 1, WaitRule::kBuffered));
  for (RankProgram& rank : training.program.ranks) {
    for (Lane& lane : rank.lanes) lane.seconds *= pass_s;
  }
  return training;
}

TEST_CASE("replay: in wall time a rank waits for what others would send",
          "[execute][replay]") {
  constexpr double kPass_s = 0.005;
  const absl::StatusOr<testing::SmallTraining> training = Training(kPass_s);
  REQUIRE(training.ok());
  const Program& program = training->program;
  const int last = program.pp() - 1;
  const absl::StatusOr<ReplayedTraining> replayed =
      TrainReplay(program, training->model, pw_cpu_kernels(), training->options,
                  {.clock = ClockKind::kReal,
                   .ranks = {last},
                   .most_passes = 2,
                   .trace = true});
  INFO(replayed.status());
  REQUIRE(replayed.ok());
  const ReplayedRun& run = replayed->replay;
  REQUIRE(run.ranks.size() == 1);
  // Three forwards of others come before its own first.
  CHECK(run.ranks[0].times.first_start_s >= last * kPass_s * (1 - 1e-9));
  CHECK(run.ranks[0].times.busy_s > 0);
  CHECK((run.consistent || run.passes == 2));
  // Its passes take what its kernels take, those of others what is given.
  CHECK(run.composed.summary.times[0][0].busy_s ==
        Approx(program.BusySeconds(0)).epsilon(1e-9));
  CHECK(run.composed.summary.times[0][last].busy_s !=
        Approx(program.BusySeconds(last)).epsilon(1e-9));
  CHECK(replayed->trained.peak_bytes[last] > 0);
  CHECK(replayed->trained.peak_bytes[0] == 0);
}

TEST_CASE("replay: copies run beside the passes of a rank alone",
          "[execute][replay]") {
  const absl::StatusOr<testing::SmallTraining> training = Training(1e-4);
  REQUIRE(training.ok());
  Random random(7);
  Schedule copies = WithCopies(*training->schedule, random);
  LowerOptions lower;
  lower.costs = PassCosts::Uniform(
      4, 1,
      {.forward_s = 1e-4, .backward_input_s = 1e-4, .backward_weight_s = 1e-4});
  lower.optimizer = OptimizerMode::kSynchronised;
  lower.iterations = 2;
  const absl::StatusOr<Program> program =
      Lower(std::make_shared<const Schedule>(std::move(copies)), lower);
  REQUIRE(program.ok());
  const absl::StatusOr<ReplayedTraining> replayed = TrainReplay(
      *program, training->model, pw_cpu_kernels(), training->options,
      {.clock = ClockKind::kReal,
       .ranks = AllRanks(*program),
       .most_passes = 1,
       .trace = true});
  INFO(replayed.status());
  REQUIRE(replayed.ok());
  int loads = 0;
  for (const TraceOp& op : replayed->replay.composed.ops) {
    if (op.kind == OpKind::kOffload) CHECK(op.end_s > op.start_s);
    loads += op.kind == OpKind::kLoad && op.end_s > op.start_s ? 1 : 0;
  }
  CHECK(loads > 0);
}

TEST_CASE("replay: every way to train runs alone too", "[execute][replay]") {
  for (const char* schedule : {"zb-v", "dualpipe", "chimera"}) {
    for (const int dp : {1, 2}) {
      for (const ClockKind clock : {ClockKind::kVirtual, ClockKind::kReal}) {
        INFO(schedule << " dp " << dp);
        absl::StatusOr<testing::SmallTraining> training =
            testing::MakeSmallTraining(schedule, 4, dp, WaitRule::kBuffered);
        REQUIRE(training.ok());
        const absl::StatusOr<ReplayedTraining> replayed =
            TrainReplay(training->program, training->model, pw_cpu_kernels(),
                        training->options,
                        {.clock = clock,
                         .ranks = AllRanks(training->program),
                         .times_known = false,
                         .most_passes = 2});
        INFO(replayed.status());
        REQUIRE(replayed.ok());
        CHECK(replayed->replay.composed.summary.iteration_s() > 0);
        for (const double bytes : replayed->trained.peak_bytes) {
          CHECK(bytes > 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pipewright::replay_test
