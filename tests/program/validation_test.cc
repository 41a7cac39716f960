// A post-validated step whose check fails: what is thrown away, what runs
// again, what it costs.
#include <catch2/catch.hpp>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/program.h"
#include "sim/report/report.h"
#include "sim/trace/trace.h"
#include "tests/support/lowering.h"
#include "tests/support/reference_engine.h"

namespace pipewright::validation_test {
namespace {

LowerOptions Failing(const Schedule& schedule, std::vector<int> failing) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 4, .backward_input = 4, .backward_weight = 4});
  options.costs.optimizer_s = 3;
  options.costs.validation_s = 0.5;
  options.costs.rollback_s = 2;
  options.network.hop_s = 0.25;
  options.optimizer = OptimizerMode::kPostValidated;
  options.failing_steps = std::move(failing);
  return options;
}

TEST_CASE("validation: a false start as text", "[program]") {
  const auto schedule = Registered("zb-h1", 2, 4);
  const std::string text = ToString(Lowered(schedule, Failing(*schedule, {0})));
  CHECK_THAT(text, Catch::Contains(
                       "0 false start: F0 send(F0) F1 send(F1) validate[1..] "
                       "rollback optimizer\n"
                       "1 false start: receive(F0) F0 wait[1..] validate[1..] "
                       "optimizer drop(F1)\n"));
}

TEST_CASE("validation: what a failing step costs one rank", "[program]") {
  // The forward that is run in vain, and the second step; nothing to undo,
  // since the last rank knows all before it steps.
  const auto schedule = Registered("1f1b", 1, 4);
  const Program program = Lowered(schedule, Failing(*schedule, {1}));
  for (const auto run : {&RunFast, &RunSimgrid}) {
    const absl::StatusOr<RunSummary> summary = run(program, {});
    REQUIRE(summary.ok());
    const Report report = Summarize(program, *summary, {});
    CHECK(report.steady);
    CHECK(report.iteration_s == 4 * 12 + 3 + 0.5);
    REQUIRE(report.rollbacks.size() == 1);
    CHECK(report.rollbacks[0].iteration == 1);
    CHECK(report.rollbacks[0].cost_s == 4 + 3);
    // The step of iteration 1 is not taken.
    CHECK(summary->iteration_end_s[1] - summary->iteration_end_s[0] ==
          report.iteration_s - 3);
  }
}

TEST_CASE("validation: a warm-up is thrown away and run again", "[program]") {
  const auto schedule = Registered("zb-h2", 4, 8);
  LowerOptions options = Failing(*schedule, {2});
  const Program program = Lowered(schedule, options);
  FullTrace trace;
  const absl::StatusOr<RunSummary> fast = RunFast(program, {.trace = &trace});
  REQUIRE(fast.ok());
  std::vector<int> forwards(4);
  std::vector<int> undone(4);
  std::vector<int> steps(4);
  for (const TraceOp& op : trace.ops()) {
    if (op.iteration == 2 && op.kind == OpKind::kOptimizer) ++steps[op.rank];
    if (op.iteration != 3) continue;
    forwards[op.rank] +=
        op.kind == OpKind::kPass && op.pass.kind() == PassKind::kForward;
    undone[op.rank] += op.kind == OpKind::kRollback;
    steps[op.rank] += op.kind == OpKind::kOptimizer;
  }
  for (int rank = 0; rank < 4; ++rank) {
    const RankProgram& rank_program = program.ranks[rank];
    const auto lost = rank_program.EndOf({.iteration = 3, .is_false = true});
    INFO("rank " << rank);
    CHECK(forwards[rank] == 8 + lost);
    CHECK(undone[rank] == (rank < 3 ? 1 : 0));
    // Early (not on the last rank), once more after the check, and the next.
    CHECK(steps[rank] == (rank < 3 ? 3 : 2));
    // What the rank above sent and this one did not run.
    const int64_t above =
        rank == 0
            ? 0
            : program.ranks[rank - 1].EndOf({.iteration = 3, .is_false = true});
    CHECK(static_cast<int64_t>(rank_program.dropped.size()) ==
          (rank == 0 ? 0 : above - lost));
  }
  // At least the warm-up of rank 0, undo and second step.
  const Report report = Summarize(program, *fast, {});
  REQUIRE(report.rollbacks.size() == 1);
  CHECK(report.rollbacks[0].cost_s >=
        4.0 * program.ranks[0].EndOf({.iteration = 3, .is_false = true}) + 5);
  options.failing_steps.clear();
  const absl::StatusOr<RunSummary> good =
      RunFast(Lowered(schedule, options), {});
  REQUIRE(good.ok());
  CHECK(good->iteration_s() == Approx(report.iteration_s).epsilon(1e-12));
}

// Every waiting rule and placement, sharded optimizers too.
TEST_CASE("validation: engines agree on failing steps", "[program][engine]") {
  int compared = 0;
  for (const char* name : {"1f1b", "zb-h1", "zb-h2", "interleaved-1f1b"}) {
    for (const WaitRule rule :
         {WaitRule::kBuffered, WaitRule::kRendezvous, WaitRule::kBatched}) {
      for (const ValidationPlace place :
           {ValidationPlace::kNoWait, ValidationPlace::kReleased}) {
        const bool chunks = name == std::string("interleaved-1f1b");
        const auto schedule = Registered(name, 4, 8, chunks ? 2 : 1);
        LowerOptions options = Failing(*schedule, {0, 1, 3});
        options.wait_rule = rule;
        if (rule == WaitRule::kBatched &&
            (chunks || name == std::string("zb-h2"))) {
          // In time steps nothing begins in vain.
          CHECK_THAT(std::string(Lower(schedule, options).status().message()),
                     Catch::Contains("strategy.waiting: batched"));
          continue;
        }
        options.validation = place;
        options.replicas = 2;
        options.data_parallel = DataParallel::kZero1;
        options.gradient_bytes.assign(schedule->stages(), 1 << 20);
        options.parameter_bytes.assign(schedule->stages(), 1 << 19);
        const Program program = Lowered(schedule, options);
        INFO(name << " " << WaitRuleName(rule));
        const absl::StatusOr<RunSummary> fast = RunFast(program, {});
        const absl::StatusOr<RunSummary> simgrid = RunSimgrid(program, {});
        CHECK(fast.ok() == simgrid.ok());
        // A failing step makes nobody wait for ever.
        options.failing_steps.clear();
        const absl::StatusOr<RunSummary> good =
            RunFast(Lowered(schedule, options), {});
        INFO((fast.ok() ? good.status() : fast.status()));
        CHECK(fast.ok() == good.ok());
        if (!fast.ok()) continue;
        ++compared;
        REQUIRE(simgrid->iterations() == fast->iterations());
        Program as_run = program;
        as_run.iterations = fast->iterations();
        const absl::StatusOr<RunSummary> naive = RunReference(as_run);
        REQUIRE(naive.ok());
        CHECK(fast->iteration_end_s == naive->iteration_end_s);
        for (int iteration = 0; iteration < fast->iterations(); ++iteration) {
          CHECK(simgrid->iteration_end_s[iteration] ==
                Approx(fast->iteration_end_s[iteration]).epsilon(1e-9));
        }
      }
    }
  }
  CHECK(compared >= 12);
}

TEST_CASE("validation: a failing step that cannot be", "[program]") {
  const auto schedule = Registered("1f1b", 2, 4);
  LowerOptions options = Failing(*schedule, {2});
  options.iterations = 5;
  CHECK_THAT(std::string(Lower(schedule, options).status().message()),
             Catch::Contains("iterations: 5") && Catch::Contains("at least 6"));
  options = Failing(*schedule, {2, 2});
  CHECK(!Lower(schedule, options).ok());
  options = Failing(*schedule, {2});
  options.optimizer = OptimizerMode::kSynchronised;
  CHECK_THAT(std::string(Lower(schedule, options).status().message()),
             Catch::Contains("post-validated"));
}

}  // namespace
}  // namespace pipewright::validation_test
