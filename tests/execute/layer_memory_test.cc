// Bytes that the executor holds where layers are gathered one by one, against
// the inventory of its tensors with each layer a unit of its own.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "execute/train/training.h"
#include "execute/train/units.h"
#include "sim/memory/executor_memory.h"
#include "sim/memory/schedule_memory.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "tests/support/lowering.h"
#include "tests/support/small_training.h"

namespace pipewright::layer_memory_test {
namespace {

struct LayerSizes {
  std::string schedule = "1f1b";
  int pp = 1;
  int vpp = 1;
  DataParallel mode = DataParallel::kFsdp;
  PwStyle style = PW_LLAMA;
  bool recompute = false;
  bool reshards = true;
  int64_t batch = 16;  // activations are then most of what a rank holds
};

std::string WordsOf(const LayerSizes& sizes) {
  return absl::StrCat(sizes.schedule, " pp ", sizes.pp, " vpp ", sizes.vpp, " ",
                      TraitsOf(sizes.mode).name, " style ", sizes.style,
                      " recompute ", sizes.recompute, " reshards ",
                      sizes.reshards, " batch ", sizes.batch);
}

struct LayerRun {
  Program program;
  ExecutedModel model;
  TrainingOptions options;
  ScheduleMemory predicted;
  ScheduleMemory of_stages;  // as if stages were whole
};

LayerRun MakeLayerRun(const LayerSizes& sizes) {
  constexpr int kReplicas = 2;
  LayerRun run;
  const auto schedule =
      Registered(sizes.schedule, sizes.pp, 2 * sizes.pp, sizes.vpp);
  LowerOptions lower;
  lower.costs = PassCosts::Uniform(
      sizes.pp, sizes.vpp,
      {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  lower.gradient_bytes.assign(schedule->stages(), 4);
  lower.parameter_bytes.assign(schedule->stages(), 4);
  lower.data_parallel = sizes.mode;
  lower.shard_blocks = ShardBlocks::kLayer;
  lower.layers.stages.assign(schedule->stages(), std::vector<LayerShare>(2));
  lower.layers.reshard_after_forward = sizes.reshards;
  lower.replicas = kReplicas;
  lower.optimizer = OptimizerMode::kSynchronised;
  lower.iterations = 2;
  REQUIRE(GathersLayers(lower));
  run.program = Lowered(schedule, lower);
  run.model =
      testing::SmallModel(sizes.style, schedule->stages(), schedule->slices);
  run.model.batch = sizes.batch;
  run.model.recompute = sizes.recompute;
  const ModelSpec spec = testing::SpecOf(run.model);
  TrainingSpec training;
  training.microbatch_size = static_cast<int>(run.model.batch);
  training.sequence = run.model.sequence;
  const absl::StatusOr<StageLayout> layout =
      EvenLayout(spec, training, sizes.pp, sizes.vpp);
  REQUIRE(layout.ok());
  const auto predict = [&](bool by_layer) {
    MemoryOptions options;
    options.framework =
        ExecutorMemory({.recompute = sizes.recompute, .by_layer = by_layer});
    return BuildScheduleMemory(spec, training, *layout, *schedule, options);
  };
  run.predicted = predict(true);
  run.of_stages = predict(false);
  run.model.stages = SplitIntoLayers(run.model.stages);
  run.options.worker =
      WorkerOptionsFor(run.program, sizes.mode, lower.optimizer);
  run.options.check = false;
  return run;
}

TrainedRun TrainLayers(const LayerRun& run) {
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(run.program, run.model, pw_cpu_kernels(), run.options);
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

void CheckLayers(const LayerSizes& sizes) {
  INFO(WordsOf(sizes));
  const LayerRun run = MakeLayerRun(sizes);
  const TrainedRun trained = TrainLayers(run);
  for (int rank = 0; rank < sizes.pp; ++rank) {
    INFO("rank " << rank);
    const RankMemory& predicted = run.predicted.ranks[rank];
    CHECK(trained.resident_bytes[rank] ==
          static_cast<double>(predicted.fixed.total()));
    CHECK(trained.peak_bytes[rank] == static_cast<double>(predicted.peak()));
    CHECK(trained.peak_activations[rank] ==
          Approx(predicted.peak_microbatches).epsilon(1e-12));
    CHECK(predicted.activations_at_end == 0);
  }
}

TEST_CASE("execute: peaks in bytes where layers are gathered one by one",
          "[execute][replicas][memory]") {
  for (const DataParallel mode : {DataParallel::kFsdp, DataParallel::kOdc}) {
    for (const bool recompute : {false, true}) {
      CheckLayers({.mode = mode, .recompute = recompute});
      CheckLayers({.schedule = "gpipe",
                   .pp = 2,
                   .mode = mode,
                   .style = PW_GPT,
                   .recompute = recompute});
      CheckLayers({.schedule = "1f1b",
                   .pp = 2,
                   .mode = mode,
                   .recompute = recompute,
                   .reshards = false});
      CheckLayers(
          {.schedule = "zb-h1", .pp = 3, .mode = mode, .recompute = recompute});
      CheckLayers({.schedule = "interleaved-1f1b",
                   .pp = 2,
                   .vpp = 2,
                   .mode = mode,
                   .recompute = recompute});
      CheckLayers({.mode = mode, .recompute = recompute, .batch = 1});
    }
  }
}

// A layer keeps its input and runs again by itself: what is kept is more than
// of a stage that runs again whole, what is made again at a time is less.
TEST_CASE("execute: a stage that runs again whole needs more than its layers",
          "[execute][replicas][memory]") {
  const LayerRun run = MakeLayerRun({.recompute = true});
  const TrainedRun trained = TrainLayers(run);
  const RankMemory& of_stages = run.of_stages.ranks[0];
  CHECK(static_cast<double>(of_stages.peak()) > 1.05 * trained.peak_bytes[0]);
  CHECK(of_stages.peak_activations < run.predicted.ranks[0].peak_activations);
}

}  // namespace
}  // namespace pipewright::layer_memory_test
