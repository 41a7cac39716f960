// Ranks that walk through the time steps of a schedule (WaitRule::kStepped).
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/torch_csv.h"
#include "sim/trace/trace.h"
#include "tests/support/lowering.h"
#include "tests/support/random_schedule.h"
#include "tests/support/reference_engine.h"

namespace pipewright::stepped_test {
namespace {

using Runner = absl::StatusOr<RunSummary> (*)(const Program&,
                                              const EngineOptions&);
const std::map<std::string, Runner> kEngines = {{"fast", &RunFast},
                                                {"simgrid", &RunSimgrid}};

// A pair taken apart takes two steps, and what follows stays where it was.
TEST_CASE("stepped: gaps behind a pair that is taken apart", "[engine]") {
  const auto of = [](const std::string& text, const char* pair) {
    auto file = ParseTorchCsv(text, "t.csv");
    REQUIRE(file.ok());
    auto split = WithPair(std::move(file->schedule), pair);
    REQUIRE(split.ok());
    return *std::move(split);
  };
  const char* const rest = "\n,1F0,1B0,,1F1,1B1\n";
  const Schedule pair = of(
      absl::StrCat("0F0,,,(0F1;0B0)OVERLAP_F_B,,,,0B1", rest), "dependencies");
  const Schedule apart = of(absl::StrCat("0F0,,,0F1,0B0,,,0B1", rest), "joint");
  REQUIRE(pair.gaps.size() == 2);
  for (size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(pair.gaps[rank].size() == apart.gaps[rank].size());
    for (size_t at = 0; at < pair.gaps[rank].size(); ++at) {
      CHECK(pair.gaps[rank][at].action == apart.gaps[rank][at].action);
      CHECK(pair.gaps[rank][at].steps == apart.gaps[rank][at].steps);
    }
  }
}

LowerOptions Stepped(const Schedule& schedule) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 1, .backward_input = 2, .backward_weight = 1});
  options.wait_rule = WaitRule::kStepped;
  options.optimizer = OptimizerMode::kNone;
  options.iterations = 1;
  return options;
}

// pp 2, vpp 2, 2 microbatches. Rank 0 takes 1 and 3, rank 1 takes 2 and 4, a
// hop half a second. PyTorch's steps:
//
//   step    0    1    2    3    4    5    6    7    8    9   10   11   12   13
//   rank 0 F0.0 F1.0 F0.1 F1.1                B0.1      B1.1      B0.0     B1.0
//   rank 1      F0.0 F1.0      F0.1 B0.1 F1.1 B1.1      B0.0      B1.0
//
//   0  rank 0 runs 0-1; rank 1 takes it 1-1.5.
//   1  both from 1.5; rank 1 ends at 3.5, both hops 3.5-4.
//   2  both from 4; rank 1 ends at 6, both hops 6-6.5.
//   3  rank 0 runs 6.5-7.5; hop to 8.
//   4  rank 1 runs 8-10. Its last stage sends nothing, nobody waits.
//   5  rank 1 runs 10-14; rank 0 takes it 14-14.5.
//   6  rank 1 runs 14.5-16.5 and sends nothing.
//   7  rank 0 runs 14.5-17.5, rank 1 16.5-20.5. Rank 0's gradient waits for
//   rank
//      1: both hops 20.5-21.
//   9  rank 0 runs 21-24, rank 1 21-25; both hops 25-25.5.
//   11 rank 0 runs 25.5-28.5, rank 1 25.5-29.5; hop to 30.
//   13 rank 0 runs 30-33.
TEST_CASE("stepped: two ranks by hand", "[engine]") {
  auto built = BuildSchedule(
      "interleaved-1f1b",
      {.pp = 2, .vpp = 2, .microbatches = 2, .own = {{"rule", "torch"}}});
  REQUIRE(built.ok());
  const auto schedule = std::make_shared<const Schedule>(*std::move(built));
  LowerOptions options = Stepped(*schedule);
  options.network.hop_s = 0.5;
  for (int stage = 0; stage < 4; ++stage) {
    options.costs.stages[stage] = {
        .forward_s = stage % 2 == 0 ? 1.0 : 2.0,
        .backward_input_s = 1,
        .backward_weight_s = stage % 2 == 0 ? 2.0 : 3.0};
  }
  const std::vector<std::vector<std::pair<double, double>>> expected = {
      {{0, 1},
       {1.5, 2.5},
       {4, 5},
       {6.5, 7.5},
       {14.5, 17.5},
       {21, 24},
       {25.5, 28.5},
       {30, 33}},
      {{1.5, 3.5},
       {4, 6},
       {8, 10},
       {10, 14},
       {14.5, 16.5},
       {16.5, 20.5},
       {21, 25},
       {25.5, 29.5}}};
  const Program program = Lowered(schedule, options);
  for (const auto& [name, run] : kEngines) {
    INFO(name);
    FullTrace trace;
    const auto summary = run(program, {.trace = &trace});
    INFO(summary.status());
    REQUIRE(summary.ok());
    std::vector<std::vector<std::pair<double, double>>> told(2);
    for (const TraceOp& op : trace.ops()) {
      if (op.kind != OpKind::kPass) continue;
      told[op.rank].emplace_back(op.start_s, op.end_s);
    }
    CHECK(told == expected);
    CHECK(summary->iteration_end_s[0] == 33);
  }
}

// Every schedule that is flushed, with stages and hops that differ, whole and
// cut into layers, in pairs and not; batches take the same steps, and others.
TEST_CASE("stepped: engines agree on all schedules", "[engine]") {
  Random random(20);
  int compared = 0;
  for (size_t row = 0; row < AllSchedules().size(); ++row) {
    for (const int pp : {1, 2, 4}) {
      for (int variant = 0; variant < 8; ++variant) {
        auto schedule = AnySchedule(row, pp, 2 * pp);
        if (!schedule.ok() || schedule->update_every > 0) continue;
        if (variant % 4 == 1) *schedule = WithJointPairs(*schedule, random);
        INFO(schedule->name << " pp " << pp << " variant " << variant);
        LowerOptions options = Stepped(*schedule);
        if (variant >= 4) options.wait_rule = WaitRule::kBatched;
        options.iterations = 2;
        options.optimizer = static_cast<OptimizerMode>(variant % 2);
        if (schedule->backward == BackwardRule::kNone) {
          options.optimizer = OptimizerMode::kNone;
        }
        options.network.hop_s = random.Time(3);
        for (StageCosts& stage : options.costs.stages) {
          stage.forward_s = 1 + random.Time(4);
          stage.backward_input_s = 1 + random.Time(6);
          stage.backward_weight_s = 1 + random.Time(8);
        }
        const bool copies = schedule->Has(PassKind::kOffload);
        bool pairs = false;
        for (int rank = 0; rank < pp; ++rank) {
          for (const Pass pass : schedule->order(rank)) {
            pairs |= pass.joint_with_next();
          }
        }
        if (variant % 4 >= 2 && schedule->directions == 1 &&
            schedule->backward == BackwardRule::kChain) {
          options.replicas = 2;
          options.data_parallel = DataParallel::kFsdp;
          options.shard_blocks = variant % 4 == 3 && !copies && !pairs
                                     ? ShardBlocks::kLayer
                                     : ShardBlocks::kPass;
          options.gradient_bytes.assign(schedule->stages(), 8);
          options.parameter_bytes.assign(schedule->stages(), 8);
          options.layers.stages.assign(
              schedule->stages(), std::vector<LayerShare>(3, LayerShare()));
        }
        const Program program = Lowered(
            std::make_shared<const Schedule>(*std::move(schedule)), options);
        const auto naive = RunReference(program);
        for (const auto& [name, run] : kEngines) {
          const auto summary = run(program, {});
          INFO(name << ": " << summary.status());
          // Copies to the host may wait for a rank that waits for another.
          if (!copies) REQUIRE(summary.ok());
          REQUIRE(summary.ok() == naive.ok());
          if (!naive.ok()) continue;
          ++compared;
          for (int iteration = 0; iteration < 2; ++iteration) {
            CHECK(summary->iteration_end_s[iteration] ==
                  Approx(naive->iteration_end_s[iteration]).epsilon(1e-9));
          }
        }
      }
    }
  }
  CHECK(compared > 600);
}

// A step is no shorter than without it.
TEST_CASE("stepped: waits never help", "[engine]") {
  for (const char* name : {"1f1b", "interleaved-1f1b", "zb-v", "looped-bfs"}) {
    const bool chunks = std::string(name) != "1f1b";
    const auto schedule = Registered(name, 4, 8, chunks ? 2 : 1);
    LowerOptions options = Stepped(*schedule);
    options.network.hop_s = 0.25;
    const auto stepped = RunFast(Lowered(schedule, options), {});
    options.wait_rule = WaitRule::kBuffered;
    const auto buffered = RunFast(Lowered(schedule, options), {});
    REQUIRE(stepped.ok());
    REQUIRE(buffered.ok());
    INFO(name);
    CHECK(stepped->iteration_end_s[0] > buffered->iteration_end_s[0]);
  }
}

TEST_CASE("stepped: a step that begins in vain is refused", "[engine]") {
  const auto schedule = Registered("zb-h1", 2, 4);
  LowerOptions options = Stepped(*schedule);
  options.optimizer = OptimizerMode::kPostValidated;
  options.failing_steps = {0};
  options.iterations = 4;
  const auto status = Lower(schedule, options).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(status.message(), "strategy.waiting"));
  CHECK(absl::StrContains(status.message(), "rollback_iterations"));
  CHECK(absl::StrContains(status.message(), "rendezvous, batched with"));
  options.failing_steps.clear();
  CHECK(Lower(schedule, options).ok());
}

}  // namespace
}  // namespace pipewright::stepped_test
