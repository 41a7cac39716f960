// The steady state: what an iteration costs once the pipeline never empties,
// with and without optimizer and data parallelism.
#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/schedule/registry.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::period_test {
namespace {

constexpr double kSame = 1e-9;  // relative (docs/architecture.md, Tests)

// Both engines have to agree; no link is shared in these programs.
RunSummary Both(const Program& program) {
  const auto fast = RunFast(program, {});
  const auto simgrid = RunSimgrid(program, {});
  INFO(fast.status() << simgrid.status());
  REQUIRE(fast.ok());
  REQUIRE(simgrid.ok());
  REQUIRE(fast->iterations() == simgrid->iterations());
  CHECK(simgrid->iteration_s() == Approx(fast->iteration_s()).epsilon(kSame));
  CHECK(simgrid->steady == fast->steady);
  return *fast;
}

LowerOptions Options(const Schedule& schedule, const PlanCosts& costs) {
  LowerOptions options;
  options.costs = CostsOf(schedule, costs);
  options.network.hop_s = costs.hop;
  return options;
}

TEST_CASE("period: without optimizer no rank waits for another's end",
          "[engine]") {
  const PlanCosts costs = {
      .forward = 3, .backward_input = 5, .backward_weight = 7, .hop = 0.25};
  // In 1F1B the first rank starts first and ends last: nothing to gain.
  const auto plain = Registered("1f1b", 4, 8);
  const RunSummary whole = Both(Lowered(plain, Options(*plain, costs)));
  CHECK(whole.steady);
  CHECK(whole.iteration_s() == SpanGlobal(whole));
  // ZB-H2 is a parallelogram: the next one fits in beside it.
  const auto zero_bubble = Registered("zb-h2", 4, 8);
  const RunSummary beside =
      Both(Lowered(zero_bubble, Options(*zero_bubble, costs)));
  CHECK(beside.steady);
  CHECK(beside.iteration_s() >= 8 * costs.work());
  CHECK(beside.iteration_s() < SpanGlobal(beside));
}

// Zero-bubble paper, sec. 4: the synchronised step makes a parallelogram a
// rectangle again; a step checked afterwards does not.
TEST_CASE("period: a post-validated step keeps the zero bubble", "[engine]") {
  const PlanCosts costs = {
      .forward = 4, .backward_input = 4, .backward_weight = 4};
  for (const int pp : {2, 4, 6}) {
    const auto schedule = Registered("zb-h2", pp, 3 * pp);
    LowerOptions options = Options(*schedule, costs);
    options.costs.optimizer_s = 0.5;
    options.costs.validation_s = 0.0625;
    options.optimizer = OptimizerMode::kPostValidated;
    const RunSummary free = Both(Lowered(schedule, options));
    options.optimizer = OptimizerMode::kSynchronised;
    const RunSummary synchronised = Both(Lowered(schedule, options));
    INFO("pp " << pp);
    CHECK(free.steady);
    const double work = 3 * pp * costs.work();
    CHECK(SpanPerRank(free) == work);  // no bubble
    CHECK(free.iteration_s() == Approx(work + 0.5 + 0.0625).epsilon(kSame));
    // Everybody waits for the last rank, then for the first.
    CHECK(synchronised.steady);
    CHECK(synchronised.iteration_s() ==
          Approx(SpanGlobal(synchronised) + 0.5).epsilon(kSame));
    CHECK(SpanGlobal(synchronised) == work + (pp - 1) * costs.forward);
  }
}

TEST_CASE("period: a post-validated step is never behind a synchronised one",
          "[engine]") {
  const PlanCosts costs = {
      .forward = 8, .backward_input = 8, .backward_weight = 8};
  int compared = 0;
  for (const ScheduleInfo* info : AllSchedules()) {
    for (const int pp : {2, 4, 8}) {
      for (const int vpp : {1, 2, 4}) {
        ScheduleParams params;
        params.pp = pp;
        params.vpp = vpp;
        params.microbatches = 3 * pp;
        absl::StatusOr<Schedule> built = BuildSchedule(info->name, params);
        // Without a flush every rank steps by itself.
        if (!built.ok() || built->update_every > 0) continue;
        const auto schedule =
            std::make_shared<const Schedule>(*std::move(built));
        LowerOptions options = Options(*schedule, costs);
        options.optimizer = OptimizerMode::kPostValidated;
        const RunSummary free = Both(Lowered(schedule, options));
        options.optimizer = OptimizerMode::kSynchronised;
        const RunSummary synchronised = Both(Lowered(schedule, options));
        INFO(info->name << " pp " << pp << " vpp " << vpp);
        CHECK(free.iteration_s() <= synchronised.iteration_s() * (1 + kSame));
        ++compared;
      }
    }
  }
  CHECK(compared >= 24);
}

// One rank, two chunks, on as many nodes as replicas: 16 B/s, latency 0.5.
RunSummary DataParallelRun(DataParallel data_parallel, double first_bytes,
                           double second_bytes) {
  const auto schedule =
      Parsed("pp 1 vpp 2 microbatches 1\n0: F0.0 F0.1 BW0.1 BW0.0");
  LowerOptions options = Options(
      *schedule, {.forward = 32, .backward_input = 32, .backward_weight = 32});
  options.replicas = 4;
  options.data_parallel = data_parallel;
  options.gradient_bytes = {first_bytes, second_bytes};
  options.parameter_bytes = {first_bytes, second_bytes};
  auto cluster = BuildCluster(SmallFabric(4, 1, 1));
  REQUIRE(cluster.ok());
  options.network = NetworkOf(std::make_shared<Cluster>(*std::move(cluster)),
                              {0, 1, 2, 3}, 1, 4);
  return Both(Lowered(schedule, options));
}

// Time of an all-reduce of four on 16 B/s: 2 * 3 * 0.5 s and 2 * 3/4 of the
// bytes.
double AllReduce(double bytes) { return 3 + 1.5 * bytes / 16; }

TEST_CASE("period: an all-reduce hides behind what comes after it",
          "[engine]") {
  // Chunk 1 is reduced during 32 s of chunk 0's backward; chunk 0 is exposed.
  const double small = AllReduce(128);
  REQUIRE(small < 32);
  CHECK(DataParallelRun(DataParallel::kDdp, 128, 128).iteration_s() ==
        Approx(96 + small).epsilon(kSame));
  // Longer than that: chunk 0 queues behind it.
  const double large = AllReduce(960);
  REQUIRE(large > 32);
  CHECK(DataParallelRun(DataParallel::kDdp, 128, 960).iteration_s() ==
        Approx(64 + large + small).epsilon(kSame));
  CHECK(DataParallelRun(DataParallel::kNone, 128, 960).iteration_s() ==
        Approx(96).epsilon(kSame));
}

TEST_CASE("period: a gather is exposed before its first use", "[engine]") {
  // Half of the all-reduce before the step, half of it behind. Chunk 0 is
  // scattered behind all backwards and gathered before all forwards; chunk 1
  // is scattered during 32 s of backward and gathered during 16 s of forward.
  const double small = AllReduce(128) / 2;
  REQUIRE(small < 16);
  CHECK(DataParallelRun(DataParallel::kZero1, 128, 128).iteration_s() ==
        Approx(96 + 2 * small).epsilon(kSame));
  const double large = AllReduce(960) / 2;
  REQUIRE(large > 32);
  CHECK(DataParallelRun(DataParallel::kZero1, 128, 960).iteration_s() ==
        Approx(96 + 2 * small + (large - 32) + (large - 16)).epsilon(kSame));
}

TEST_CASE("period: a joint pair starts and releases as one", "[engine]") {
  const auto schedule = Parsed(
      "pp 2 vpp 1 microbatches 2\n"
      "0: F0 F1 BW0 BW1\n"
      "1: F0 (BW0&F1) BW1");
  LowerOptions options = Options(
      *schedule,
      {.forward = 1, .backward_input = 2, .backward_weight = 2, .hop = 0.5});
  options.iterations = 1;
  const Program program = Lowered(schedule, options);
  const RunSummary summary = Both(program);
  // F0 1, hop, F0 2.5; F1 has come at 2.5: block 2.5 to 7.5; BW0 of rank 0
  // from 8 to 12, BW1 of rank 1 until 11.5, of rank 0 from 12 to 16.
  CHECK(summary.times[0][1].last_end_s == 11.5);
  CHECK(summary.times[0][0].last_end_s == 16);
  CHECK(summary.times[0][1].busy_s == 10);
}

}  // namespace
}  // namespace pipewright::period_test
