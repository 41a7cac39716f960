// Each step of Lower alone: what it adds to a Program of passes, and that it
// adds nothing where it has nothing to do.
#include "sim/program/lowering.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <vector>

#include "sim/base/status.h"
#include "tests/support/lowering.h"

namespace pipewright::lowering_test {
namespace {

// 1F1B with passes alone: F, B and W take 1, 1 and 1 s on each stage.
class Lowered1F1B {
 public:
  explicit Lowered1F1B(int vpp = 1)
      : schedule(Registered(vpp > 1 ? "interleaved-1f1b" : "1f1b", kRanks,
                            kMicrobatches, vpp)) {
    options.costs = CostsOf(*schedule, {});
    options.replicas = 2;
    options.gradient_bytes.assign(schedule->stages(), 100);
    options.parameter_bytes.assign(schedule->stages(), 50);
    program.schedule = schedule;
  }

  LoweringStep Passes() {
    const LoweringStep step(*schedule, options, &program);
    REQUIRE(PassLowering(step).Run() == absl::OkStatus());
    return step;
  }
  int Count(OpKind kind) const {
    int count = 0;
    for (const RankProgram& rank : program.ranks) {
      count += static_cast<int>(
          std::count_if(rank.side_ops.begin(), rank.side_ops.end(),
                        [kind](const SideOp& op) { return op.kind == kind; }));
    }
    return count;
  }

  static constexpr int kRanks = 4;
  static constexpr int kMicrobatches = 8;
  std::shared_ptr<const Schedule> schedule;
  LowerOptions options;
  Program program;
};

TEST_CASE("lowering: passes alone have lanes, and channels to neighbours",
          "[program]") {
  Lowered1F1B run;
  run.Passes();
  // Activations down, gradients up.
  CHECK(run.program.channels.size() == 2 * (run.kRanks - 1));
  for (const RankProgram& rank : run.program.ranks) {
    CHECK(rank.lanes[Pass::LaneOf(PassKind::kForward, 0, 0)].passes ==
          run.kMicrobatches);
    CHECK(rank.side_ops.empty());
  }
}

TEST_CASE("lowering: options that do not fit are refused before any step",
          "[program]") {
  Lowered1F1B run;
  run.options.data_parallel = DataParallel::kDdp;
  const LoweringStep step = run.Passes();
  CHECK(LoweringCheck(step).Run() == absl::OkStatus());
  run.options.gradient_bytes.pop_back();
  CHECK(LoweringCheck(step).Run().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("lowering: a reduction for each stage, a wait for its event",
          "[program]") {
  Lowered1F1B run(2);
  run.options.data_parallel = DataParallel::kDdp;
  const LoweringStep step = run.Passes();
  TableSum table(step);
  GradientReduction reduction(step, &table);
  RankEvents events(run.kRanks);
  REQUIRE(reduction.Add(&events) == absl::OkStatus());
  CHECK(run.Count(OpKind::kAllReduce) == run.schedule->stages());
  for (const std::vector<int32_t>& own : events) CHECK(own.size() == 2);
  CHECK(reduction.groups().size() == run.kRanks);
  // Behind the last backward of the chunk, never in front of it.
  for (int rank = 0; rank < run.kRanks; ++rank) {
    const RankOrder& order = *run.program.ranks[rank].order;
    for (const Reduction& each : *reduction.ReductionsOf(rank)) {
      for (size_t at = each.position; at < order.size(); ++at) {
        CHECK((order[at].kind() == PassKind::kForward ||
               order[at].chunk() != each.chunk));
      }
    }
  }
}

TEST_CASE("lowering: a table on two ranks is summed once by each",
          "[program]") {
  for (const bool sharded : {false, true}) {
    Lowered1F1B run;
    run.options.data_parallel =
        sharded ? DataParallel::kZero1 : DataParallel::kDdp;
    run.options.tied_bytes = 10;
    const LoweringStep step = run.Passes();
    TableSum table(step);
    CHECK(table.comes_first() == sharded);
    CHECK(table.HasTable(0));
    CHECK_FALSE(table.HasTable(1));
    RankEvents events(run.kRanks);
    table.AddBehind(&events);
    CHECK(run.Count(OpKind::kAllReduce) == (sharded ? 0 : 2));
    CHECK(events[0].size() == (sharded ? 0 : 1));
    CHECK(events[1].empty());
  }
}

TEST_CASE("lowering: blocks of sharded weights gather and scatter by hooks",
          "[program]") {
  for (const DataParallel kind : {DataParallel::kZero2, DataParallel::kFsdp}) {
    Lowered1F1B run;
    run.options.data_parallel = kind;
    const LoweringStep step = run.Passes();
    RankEvents events(run.kRanks);
    BlockShards blocks(step);
    blocks.Add(&events);
    const bool weights = kind == DataParallel::kFsdp;
    CHECK(run.Count(OpKind::kAllGather) == (weights ? run.kRanks : 0));
    CHECK(run.Count(OpKind::kReduceScatter) == run.kRanks);
    CHECK(blocks.groups().size() == run.kRanks);
  }
}

TEST_CASE("lowering: layers share the bytes and the time of their stage",
          "[program]") {
  Lowered1F1B run;
  run.options.data_parallel = DataParallel::kFsdp;
  run.options.shard_blocks = ShardBlocks::kLayer;
  run.options.layers.stages.assign(run.schedule->stages(),
                                   {{1, 1, 1}, {3, 4, 2}});
  const LoweringStep step = run.Passes();
  const double before_s = run.program.ranks[1]
                              .lanes[Pass::LaneOf(PassKind::kForward, 0, 0)]
                              .seconds;
  RankEvents events(run.kRanks);
  LayerShards layers(step);
  layers.Add(&events);
  const RankProgram& rank = run.program.ranks[1];
  CHECK(rank.order->size() == 2 * run.schedule->order(1).size());
  const auto seconds = [&rank](int layer) {
    return rank.lanes[Pass::LaneOf(PassKind::kForward, layer, 0)].seconds;
  };
  CHECK(seconds(0) + seconds(1) == Approx(before_s));
  CHECK(seconds(1) == Approx(3 * seconds(0)));
  CHECK(layers.GatherOf(1, 0, false).bytes == Approx(50.0 / 3));
  CHECK(layers.GatherOf(1, 1, false).bytes == Approx(2 * 50.0 / 3));
  CHECK(layers.ReductionOf(1, 1).bytes == Approx(4 * 100.0 / 5));

  // Nothing runs beside layers at 1, and copies cost nothing without a rate.
  PassLengthening(step).LengthenLayers(layers);
  CHECK(seconds(0) + seconds(1) == Approx(before_s));
  // Each byte that is gathered is read and written once by the device.
  run.options.layers.copies_bytes_per_s = 1;
  PassLengthening(step).LengthenLayers(layers);
  CHECK(seconds(0) + seconds(1) > before_s + 2 * 50);
}

TEST_CASE("lowering: an optimizer on the host steps each of its subgroups",
          "[program]") {
  Lowered1F1B run;
  run.options.optimizer = OptimizerMode::kSynchronised;
  run.options.offload.placement = OptimizerPlacement::kZeroOffload;
  run.options.offload.flush = GradientFlush::kBlocking;
  run.options.offload.parameters.assign(run.schedule->stages(), 4e8);
  run.options.offload.subgroup_size = 1e8;
  run.options.offload.device_adam_rate = 1;
  run.options.offload.flush_rate = 1;
  const LoweringStep step = run.Passes();
  TableSum table(step);
  GradientReduction reduction(step, &table);
  OffloadedStep host(step);
  RankEvents events(run.kRanks);
  REQUIRE(host.AddFlush(reduction, table, &events) == absl::OkStatus());
  CHECK(run.Count(OpKind::kFlush) == run.kRanks);
  PostValidatedStep validated(step);
  REQUIRE(OptimizerStep(step, &host, &validated).Add(events) ==
          absl::OkStatus());
  CHECK(run.Count(OpKind::kHostAdam) == 4 * run.kRanks);
  CHECK(run.Count(OpKind::kOptimizer) == 0);
}

TEST_CASE("lowering: a step that is checked later sends its state both ways",
          "[program]") {
  Lowered1F1B run;
  run.options.optimizer = OptimizerMode::kPostValidated;
  run.options.data_parallel = DataParallel::kZero1;
  const LoweringStep step = run.Passes();
  const size_t channels = run.program.channels.size();
  PostValidatedStep validated(step);
  REQUIRE(validated.Add() == absl::OkStatus());
  CHECK(run.program.channels.size() == channels + 2 * (run.kRanks - 1));
  CHECK(run.Count(OpKind::kOptimizer) == run.kRanks);
  CHECK(run.Count(OpKind::kValidate) == run.kRanks);

  std::vector<int> groups(run.kRanks);
  std::iota(groups.begin(), groups.end(), 0);
  ParameterGather(step).Add(groups, &validated);
  CHECK(run.Count(OpKind::kAllGather) == run.kRanks);
  // No false start, so nothing is gathered again.
  validated.Finish();
  for (const RankProgram& rank : run.program.ranks) {
    CHECK(rank.false_start_end == 0);
  }
}

}  // namespace
}  // namespace pipewright::lowering_test
