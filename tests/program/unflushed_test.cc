// Pipelines that are never flushed: pipedream-2bw and pipeoptim.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/memory/activations.h"
#include "sim/program/program.h"
#include "sim/report/report.h"
#include "sim/schedule/text.h"
#include "sim/trace/trace.h"
#include "tests/support/lowering.h"
#include "tests/support/reference_engine.h"

namespace pipewright::unflushed_test {
namespace {

LowerOptions Options(const Schedule& schedule) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 4, .backward_input = 4, .backward_weight = 4});
  options.costs.optimizer_s = 1;
  options.costs.prediction_s = 0.5;
  return options;
}

TEST_CASE("unflushed: an iteration ends with forwards of the next",
          "[program]") {
  const auto schedule = Registered("pipedream-2bw", 2, 3);
  CHECK_THAT(ToString(Lowered(schedule, Options(*schedule))),
             Catch::Contains(
                 "0: F0 send(F0) | F1 send(F1) receive(BW0) BW0 F2 send(F2) "
                 "receive(BW1) BW1 F0 send(F0) receive(BW2) BW2 optimizer\n"
                 "1: receive(F0) F0 BW0 send(BW0) receive(F1) F1 BW1 send(BW1) "
                 "receive(F2) F2 BW2 send(BW2) optimizer\n"));
  const auto every = Registered("pipeoptim", 2, 2);
  CHECK_THAT(
      ToString(Lowered(every, Options(*every))),
      Catch::Contains(
          "0: predict F0 send(F0) | predict F1 send(F1) receive(BW0) BW0 "
          "optimizer predict F0 send(F0) receive(BW1) BW1 optimizer\n"
          "1: receive(F0) F0 BW0 send(BW0) optimizer receive(F1) F1 BW1 "
          "send(BW1) optimizer\n"));
}

// Without hops no rank waits in the steady state.
TEST_CASE("unflushed: no bubble in the steady state", "[program][engine]") {
  for (const int pp : {1, 2, 4, 7}) {
    for (const int microbatches : {pp, pp + 3, 4 * pp}) {
      for (const char* name : {"pipedream-2bw", "pipeoptim"}) {
        const auto schedule = Registered(name, pp, microbatches);
        const Program program = Lowered(schedule, Options(*schedule));
        INFO(name << " pp " << pp << " microbatches " << microbatches);
        const absl::StatusOr<RunSummary> fast = RunFast(program, {});
        REQUIRE(fast.ok());
        CHECK(fast->steady);
        const bool every = schedule->update_every == 1 && pp > 1;
        const double period_s =
            every ? microbatches * (12 + 1 + 0.5)
                  : microbatches * 12 +
                        (schedule->update_every == 1 ? microbatches : 1);
        CHECK(fast->iteration_s() == period_s);
        const absl::StatusOr<RunSummary> simgrid = RunSimgrid(program, {});
        REQUIRE(simgrid.ok());
        CHECK(simgrid->iteration_s() == Approx(period_s).epsilon(1e-9));
        Program as_run = program;
        as_run.iterations = fast->iterations();
        const absl::StatusOr<RunSummary> naive = RunReference(as_run);
        REQUIRE(naive.ok());
        CHECK(naive->iteration_end_s == fast->iteration_end_s);
      }
    }
  }
}

// Steps that a rank takes between a forward and its own backward, counted in
// a run; and what the schedule says of it.
TEST_CASE("unflushed: staleness is what a run shows", "[program]") {
  for (const char* name : {"pipedream-2bw", "pipeoptim"}) {
    const auto schedule = Registered(name, 4, 6);
    LowerOptions options = Options(*schedule);
    options.iterations = 6;
    FullTrace trace;
    const Program program = Lowered(schedule, options);
    const absl::StatusOr<RunSummary> run = RunFast(program, {.trace = &trace});
    REQUIRE(run.ok());
    std::vector<int> steps(4);
    std::vector<int> most(4);
    std::vector<std::map<int, int>> forward_at(4);
    std::vector<TraceOp> ops = trace.ops();
    std::stable_sort(ops.begin(), ops.end(),
                     [](const TraceOp& one, const TraceOp& other) {
                       return one.start_s < other.start_s;
                     });
    for (const TraceOp& op : ops) {
      if (op.kind == OpKind::kOptimizer) ++steps[op.rank];
      if (op.kind != OpKind::kPass) continue;
      const int microbatch = op.pass.microbatch();
      if (op.pass.kind() == PassKind::kForward) {
        forward_at[op.rank][microbatch] = steps[op.rank];
      } else {
        most[op.rank] = std::max(
            most[op.rank], steps[op.rank] - forward_at[op.rank].at(microbatch));
      }
    }
    const WeightVersions weights = WeightVersionsOf(*schedule);
    const Report report = Summarize(program, *run, {});
    CHECK(report.staleness == weights.staleness);
    CHECK(report.weight_versions == weights.versions);
    CHECK(*report.microbatches_per_s == Approx(6 / report.iteration_s));
    if (schedule->update_every == 1) {
      CHECK(most == std::vector<int>{3, 2, 1, 0});
      CHECK(weights.staleness == most);
      CHECK(weights.versions == std::vector<int>{2, 2, 2, 1});
    } else {
      // The last rank could use newer weights, but a microbatch uses one
      // version everywhere.
      CHECK(most == std::vector<int>{1, 1, 1, 0});
      CHECK(weights.staleness == std::vector<int>{1, 1, 1, 1});
      CHECK(weights.versions == std::vector<int>{2, 2, 2, 2});
    }
  }
  const auto flushed = Registered("1f1b", 2, 4);
  CHECK(WeightVersionsOf(*flushed).versions == std::vector<int>{1, 1});
}

TEST_CASE("unflushed: the file form keeps it", "[program][schedule]") {
  const auto schedule = Registered("pipedream-2bw", 2, 3);
  for (const std::string& text :
       {ScheduleToText(*schedule), ScheduleToJson(*schedule)}) {
    const absl::StatusOr<Schedule> read = ParseSchedule(text, "file");
    REQUIRE(read.ok());
    CHECK(read->update_every == 3);
  }
  CHECK(!ParseSchedule("pipewright-schedule 1\npp 1 vpp 1 microbatches 4 "
                       "update_every 3\n0: F0 BW0 F1 BW1 F2 BW2 F3 BW3\n",
                       "file")
             .ok());
  // Whatever leads with forwards and ends with as many backwards can overlap.
  const auto other =
      Parsed("pp 1 vpp 1 microbatches 2 update_every 2\n0: F0 F1 B0 W0 BW1");
  CHECK(!Lower(other, Options(*other)).ok());
}

TEST_CASE("unflushed: what cannot go with it", "[program]") {
  const auto schedule = Registered("pipeoptim", 2, 4);
  const auto message = [&](LowerOptions options) {
    return std::string(Lower(schedule, options).status().message());
  };
  LowerOptions options = Options(*schedule);
  options.wait_rule = WaitRule::kBatched;
  CHECK_THAT(message(options), Catch::Contains("strategy.waiting"));
  options = Options(*schedule);
  options.optimizer = OptimizerMode::kSynchronised;
  CHECK_THAT(message(options), Catch::Contains("strategy.optimizer"));
  options = Options(*schedule);
  options.replicas = 2;
  options.data_parallel = DataParallel::kDdp;
  options.gradient_bytes = {1, 1};
  CHECK_THAT(message(options), Catch::Contains("strategy.data_parallel"));
}

}  // namespace
}  // namespace pipewright::unflushed_test
