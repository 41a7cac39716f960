// What draws share: it changes no Program and no time, to the last bit.
#include "sim/config/prepare_draws.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/config/prepare.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/known_times.h"
#include "sim/program/program.h"

namespace pipewright::draw_plan_test {
namespace {

RunConfig DrawnConfig(DataParallel mode, Packer packer) {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = "1f1b";
  config.model.preset = "gpt-tiny";
  config.system.preset = "dgx-h100";
  config.system.nodes = 2;
  config.costs.analytic = true;
  StrategyChoice& strategy = config.strategy;
  strategy.pp = 1;
  strategy.dp = 16;
  strategy.data_parallel = mode;
  if (mode == DataParallel::kFsdp) strategy.shard_blocks = ShardBlocks::kLayer;
  config.sequences.lengths = "longalign";
  config.sequences.minibatch = 3;
  config.sequences.packer = packer;
  config.sequences.packer_cost = PackerCost::kFit;
  return config;
}

PreparedRun PreparedOf(const RunConfig& config) {
  absl::StatusOr<PreparedRun> run = Prepare(config);
  INFO(run.status());
  REQUIRE(run.ok());
  return *std::move(run);
}

Program ProgramOfDraw(const PreparedRun& prepared, int64_t draw,
                      DrawPlan* plan) {
  PreparedRun run = prepared;
  REQUIRE(TakeDraw(draw, &run, plan).ok());
  absl::StatusOr<Program> program = LowerRun(run, plan);
  INFO(program.status());
  REQUIRE(program.ok());
  return *std::move(program);
}

struct DrawnMode {
  DataParallel mode;
  Packer packer;
  int part = 0;  // HSDP
};

TEST_CASE("draws: what they share changes no bit", "[sequences]") {
  for (const DrawnMode& each :
       {DrawnMode{DataParallel::kOdc, Packer::kLbMini},
        DrawnMode{DataParallel::kOdc, Packer::kLbMini, 4},
        DrawnMode{DataParallel::kOdc, Packer::kNone},
        DrawnMode{DataParallel::kFsdp, Packer::kLbMicro},
        DrawnMode{DataParallel::kDdp, Packer::kLbMiniBfd}}) {
    RunConfig config = DrawnConfig(each.mode, each.packer);
    if (each.part > 0) config.strategy.shard_group = each.part;
    const PreparedRun prepared = PreparedOf(config);
    DrawPlan plan;
    KnownTimes times;
    std::vector<double> ends;
    for (int64_t draw = 0; draw < 12; ++draw) {
      INFO("mode " << static_cast<int>(each.mode) << " packer "
                   << static_cast<int>(each.packer) << " draw " << draw);
      const Program alone = ProgramOfDraw(prepared, draw, nullptr);
      const Program shared = ProgramOfDraw(prepared, draw, &plan);
      CHECK(ToString(shared) == ToString(alone));
      CHECK(shared.class_of_replica == alone.class_of_replica);
      REQUIRE(shared.num_classes() == alone.num_classes());
      for (int index = 0; index < alone.num_classes(); ++index) {
        const DpClass& one = shared.dp_class(index);
        const DpClass& other = alone.dp_class(index);
        CHECK(one.lane_factors == other.lane_factors);
        CHECK(one.gradient_weight == other.gradient_weight);
      }
      // Not verified when it is joined, as its numbers of microbatches were.
      CHECK(VerifyProgram(shared).ok());
      const auto expected = RunFast(alone, {});
      const auto found = RunFastKnowing(shared, {}, &times);
      REQUIRE((expected.ok() && found.ok()));
      CHECK(found->iteration_end_s == expected->iteration_end_s);
      CHECK(found->row_of_replica == expected->row_of_replica);
      ends.push_back(found->iteration_s());
    }
    // Draws differ.
    CHECK(ends[0] != ends[1]);
  }
}

// A fault: times under the wrong schedule are taken as they are.
TEST_CASE("draws: known times are what a run takes", "[sequences]") {
  const PreparedRun prepared =
      PreparedOf(DrawnConfig(DataParallel::kOdc, Packer::kNone));
  const Program program = ProgramOfDraw(prepared, 0, nullptr);
  KnownTimes times;
  const double right_s = RunFastKnowing(program, {}, &times)->iteration_s();
  KnownTimes wrong;
  const ReplicaRows rows = SortReplicas(program);
  for (int replica = 0; replica < program.replicas; ++replica) {
    IsolatedTimes slow = rows.times[rows.row_of_replica[replica]];
    for (double& seconds : slow.lane_s[0]) seconds *= 2;
    wrong.Get(program.OfReplica(replica).schedule, replica,
              [&] { return slow; });
  }
  CHECK(RunFastKnowing(program, {}, &wrong)->iteration_s() > 1.5 * right_s);
  CHECK(RunFastKnowing(program, {}, &times)->iteration_s() == right_s);
}

TEST_CASE("draws: classes that cannot join say so with a plan too",
          "[sequences]") {
  // fsdp with unequal numbers of microbatches, past the refusal by name.
  const PreparedRun packed =
      PreparedOf(DrawnConfig(DataParallel::kOdc, Packer::kLbMini));
  PreparedRun fsdp =
      PreparedOf(DrawnConfig(DataParallel::kFsdp, Packer::kLbMicro));
  int refused = 0;
  for (int64_t draw = 0; draw < 20; ++draw) {
    PreparedRun drawn = packed;
    REQUIRE(TakeDraw(draw, &drawn).ok());
    if (drawn.sequences->least_microbatches() ==
        drawn.sequences->most_microbatches()) {
      continue;
    }
    fsdp.sequences = drawn.sequences;
    for (auto& schedule : fsdp.sequences->schedules) {
      if (schedule == nullptr) schedule = drawn.schedule.lowered;
    }
    DrawPlan own;
    const absl::Status alone = LowerRun(fsdp).status();
    const absl::Status shared = LowerRun(fsdp, &own).status();
    CHECK(!alone.ok());
    CHECK(shared == alone);
    CHECK(absl::StrContains(shared.message(), "deadlock"));
    ++refused;
  }
  CHECK(refused > 0);
}

}  // namespace
}  // namespace pipewright::draw_plan_test
