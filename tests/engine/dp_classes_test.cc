// Data-parallel replicas of several classes in one Program.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/dp_classes.h"
#include "sim/program/lower.h"
#include "tests/support/lowering.h"
#include "tests/support/queue_transport.h"
#include "tests/support/random_program.h"
#include "tests/support/reference_engine.h"

namespace pipewright::dp_classes_test {
namespace {

void CheckSame(const RunSummary& one, const RunSummary& other,
               double tolerance) {
  const auto near = [&](double a, double b) {
    return std::abs(a - b) <=
           tolerance * std::max({1e-3, std::abs(a), std::abs(b)});
  };
  REQUIRE(one.row_of_replica.size() == other.row_of_replica.size());
  REQUIRE(one.iterations() == other.iterations());
  for (int iteration = 0; iteration < one.iterations(); ++iteration) {
    CHECK(
        near(one.iteration_end_s[iteration], other.iteration_end_s[iteration]));
  }
  for (size_t replica = 0; replica < one.row_of_replica.size(); ++replica) {
    const std::vector<RankTimes>& mine = one.times[one.row_of_replica[replica]];
    const std::vector<RankTimes>& theirs =
        other.times[other.row_of_replica[replica]];
    REQUIRE(mine.size() == theirs.size());
    for (size_t rank = 0; rank < mine.size(); ++rank) {
      INFO("replica " << replica << " rank " << rank);
      CHECK(near(mine[rank].first_start_s, theirs[rank].first_start_s));
      CHECK(near(mine[rank].last_end_s, theirs[rank].last_end_s));
      CHECK(near(mine[rank].busy_s, theirs[rank].busy_s));
    }
  }
  // The reference counts none.
  if (tolerance > 0) CHECK(one.bytes_sent == other.bytes_sent);
}

// 1F1B on two ranks, F = 1 and BW = 2, times `slower`. Gradients are reduced
// where the rank has its last backward.
LowerOptions OptionsOf(int replicas, double slower) {
  LowerOptions options;
  options.costs = PassCosts::Uniform(2, 1,
                                     {.forward_s = slower,
                                      .backward_input_s = slower,
                                      .backward_weight_s = slower});
  options.replicas = replicas;
  options.data_parallel = DataParallel::kDdp;
  options.gradient_bytes = {8, 8};
  options.iterations = 3;
  return options;
}

// Class 0 runs four microbatches, class 1 two that take 1.5 times as long.
Program TwoClasses(std::vector<int> class_of_replica) {
  const auto replicas = static_cast<int>(class_of_replica.size());
  std::vector<Program> classes;
  classes.push_back(Lowered(Registered("1f1b", 2, 4), OptionsOf(replicas, 1)));
  classes.push_back(
      Lowered(Registered("1f1b", 2, 2), OptionsOf(replicas, 1.5)));
  absl::StatusOr<Program> joined =
      JoinClasses(std::move(classes), std::move(class_of_replica));
  INFO(joined.status());
  REQUIRE(joined.ok());
  return *std::move(joined);
}

RunSummary RunWith(const char* engine, const Program& program) {
  const absl::StatusOr<const EngineInfo*> info = FindEngine(engine);
  REQUIRE(info.ok());
  absl::StatusOr<RunSummary> run = (*info)->run(program, {});
  INFO(run.status());
  REQUIRE(run.ok());
  return *std::move(run);
}

TEST_CASE("engine: random programs of several classes on all engines",
          "[engine][dp_classes][long]") {
  int compared = 0;
  int several = 0;
  int uneven = 0;
  int factors = 0;
  int held = 0;
  int hooked = 0;
  int false_starts = 0;
  int refused = 0;
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    absl::StatusOr<RandomProgram> made =
        MakeRandomProgram(seed, {.most_replicas = 5, .most_classes = 3});
    if (!made.ok()) {
      INFO(seed << " " << made.status());
      REQUIRE(made.status().code() != absl::StatusCode::kInternal);
      ++refused;
      continue;
    }
    INFO(made->about);
    const Program& program = made->program;
    const absl::StatusOr<RunSummary> fast = RunFast(program, {});
    const absl::StatusOr<RunSummary> reference = RunReference(program);
    INFO(fast.status());
    REQUIRE(fast.ok() == reference.ok());
    if (program.network.cluster == nullptr) {
      const absl::StatusOr<RunSummary> events = RunOnQueue(program);
      REQUIRE(fast.ok() == events.ok());
      if (fast.ok()) CheckSame(*fast, *events, 1e-9);
      // A child process for each: a few will do.
      if (seed % 20 == 0) {
        const absl::StatusOr<RunSummary> simgrid = RunSimgrid(program, {});
        REQUIRE(fast.ok() == simgrid.ok());
        if (fast.ok()) CheckSame(*fast, *simgrid, 1e-9);
      }
    }
    if (!fast.ok()) continue;
    CheckSame(*fast, *reference, 0);
    ++compared;
    if (program.num_classes() == 1) continue;
    ++several;
    bool other_count = false;
    bool own_factors = false;
    for (int index = 0; index < program.num_classes(); ++index) {
      const DpClass& own = program.dp_class(index);
      other_count |=
          own.schedule->microbatches != program.schedule->microbatches;
      own_factors |= !own.lane_factors.empty();
    }
    uneven += other_count ? 1 : 0;
    factors += own_factors ? 1 : 0;
    held += program.wait_rule == WaitRule::kBuffered ? 0 : 1;
    hooked += program.ranks[0].hooks.empty() ? 0 : 1;
    false_starts += program.false_starts.empty() ? 0 : 1;
  }
  CHECK(compared > 600);
  CHECK(several > 250);
  CHECK(uneven > 100);
  CHECK(factors > 150);
  CHECK(held > 25);
  CHECK(hooked > 150);
  CHECK(false_starts > 20);
  // Most of them: fsdp and post-validated steps of uneven classes.
  CHECK(refused < 500);
}

TEST_CASE("engine: two classes by hand", "[engine][dp_classes]") {
  const Program program = TwoClasses({0, 1, 0});
  for (const char* engine : {"fast", "simgrid"}) {
    INFO(engine);
    const RunSummary run = RunWith(engine, program);
    const auto times = [&](int replica, int rank) {
      return run.times[run.row_of_replica[replica]][rank];
    };
    // (m + p - 1) (F + BW): 5 times 3, and 3 times 4.5.
    CHECK(times(0, 0).last_end_s == Approx(15));
    CHECK(times(2, 0).last_end_s == Approx(15));
    CHECK(times(1, 0).last_end_s == Approx(13.5));
    CHECK(times(0, 1).last_end_s == Approx(13));
    CHECK(times(1, 1).last_end_s == Approx(10.5));
    CHECK(times(0, 0).busy_s == Approx(12));
    CHECK(times(1, 1).busy_s == Approx(9));
    // Nobody goes on before the slowest replica has its gradients.
    CHECK(run.iteration_end_s[0] == Approx(15));
    CHECK(run.iteration_end_s[1] == Approx(30));
  }
}

TEST_CASE("engine: a class alone would not wait", "[engine][dp_classes]") {
  LowerOptions quick = OptionsOf(2, 1);
  LowerOptions slow = OptionsOf(2, 2);
  quick.data_parallel = slow.data_parallel = DataParallel::kNone;
  std::vector<Program> classes = {Lowered(Registered("1f1b", 2, 4), quick),
                                  Lowered(Registered("1f1b", 2, 4), slow)};
  const absl::StatusOr<Program> joined =
      JoinClasses(std::move(classes), {0, 1});
  REQUIRE(joined.ok());
  const RunSummary run = RunWith("fast", *joined);
  CHECK(run.times[run.row_of_replica[0]][0].last_end_s == Approx(15));
  CHECK(run.times[run.row_of_replica[1]][0].last_end_s == Approx(30));
  CHECK(run.iteration_end_s[0] == Approx(30));
}

TEST_CASE("engine: classes that are alike run as one", "[engine][dp_classes]") {
  int compared = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, {});
    if (!made.ok() || made->program.replicas == 1) continue;
    INFO(made->about);
    const Program& one = made->program;
    Program two = one;
    two.more_classes.push_back(one);
    two.class_of_replica.assign(one.replicas, 1);
    two.class_of_replica[one.replicas / 2] = 0;
    REQUIRE(VerifyProgram(two).ok());
    const absl::StatusOr<RunSummary> alone = RunFast(one, {});
    const absl::StatusOr<RunSummary> both = RunFast(two, {});
    REQUIRE(alone.ok() == both.ok());
    if (!alone.ok()) continue;
    CheckSame(*both, *alone, 0);
    ++compared;
  }
  CHECK(compared > 100);
}

TEST_CASE("engine: rows grow with classes, not with replicas",
          "[engine][dp_classes]") {
  std::vector<int> class_of_replica(20000, 0);
  class_of_replica[77] = 1;
  class_of_replica[19999] = 1;
  const Program program = TwoClasses(class_of_replica);
  const RunSummary run = RunWith("fast", program);
  CHECK(run.times.size() == 2);
  CHECK(run.row_of_replica[77] == run.row_of_replica[19999]);
  CHECK(run.row_of_replica[77] != run.row_of_replica[0]);
  CHECK(run.iteration_end_s[0] == Approx(15));
  // Each replica of a class has the class's own orders.
  CHECK(&program.OfReplica(77) == &program.OfReplica(19999));
}

}  // namespace
}  // namespace pipewright::dp_classes_test
