// Bytes that the executor holds against those of the inventory of its tensors:
// the one side is counted by its allocator, the other follows from the order of
// passes (sim/memory/executor_memory.h).
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "execute/training.h"
#include "sim/memory/activations.h"
#include "sim/memory/executor_memory.h"
#include "sim/memory/schedule_memory.h"
#include "sim/schedule/registry.h"
#include "tests/support/small_training.h"

namespace pipewright {
namespace {

struct Sizes {
  std::string schedule;
  int pp = 4;
  PwStyle style = PW_LLAMA;
  PwType type = PW_FP32;
  bool recompute = false;
  OptimizerMode optimizer = OptimizerMode::kSynchronised;
  int slices = 1;
  bool experts = false;
};

struct Run {
  std::shared_ptr<const Schedule> schedule;
  ExecutedModel model;
  Program program;
  WorkerOptions worker;
  ScheduleMemory predicted;
};

void AddExperts(ModelSpec* spec, ExecutedModel* model) {
  spec->experts = model->shape.experts = 4;
  spec->experts_per_token = model->shape.experts_per_token = 2;
  spec->expert_ffn_hidden = model->shape.expert_ffn = 16;
  spec->shared_ffn_hidden = model->shape.shared_ffn = 8;
  model->shape.ep = 1;
  model->shape.balanced = 1;
  spec->first_dense_layers = 1;
  for (std::vector<StagePart>& stage : model->stages) {
    for (StagePart& part : stage) {
      if (part.layer > 0) part.part = PW_EXPERT_LAYER;
    }
  }
}

// The same model for both sides: what is executed, and what sim/model knows.
ModelSpec SpecOf(const ExecutedModel& model) {
  const PwModel& shape = model.shape;
  ModelSpec spec;
  spec.name = "small";
  spec.hidden = shape.hidden;
  spec.heads = shape.heads;
  spec.kv_heads = shape.kv_heads;
  spec.head_dim = shape.head_dim;
  spec.ffn_hidden = shape.ffn;
  spec.gated = shape.style == PW_LLAMA;
  spec.layer_norm = spec.bias = spec.qkv_bias = !spec.gated;
  spec.vocabulary = shape.vocabulary;
  spec.sequence = model.sequence;
  spec.layers = 2 * model.num_stages();
  return spec;
}

Run MakeRun(const Sizes& sizes) {
  Run run;
  const absl::StatusOr<ScheduleMatch> match = FindSchedule(sizes.schedule);
  REQUIRE(match.ok());
  ScheduleParams params;
  params.pp = sizes.pp;
  params.vpp = match->info->default_vpp;
  params.microbatches = 2 * sizes.pp;
  params.slices = sizes.slices;
  absl::StatusOr<Schedule> built = BuildSchedule(sizes.schedule, params);
  REQUIRE(built.ok());
  run.schedule = std::make_shared<const Schedule>(*std::move(built));
  const Schedule& schedule = *run.schedule;
  run.model =
      testing::SmallModel(sizes.style, schedule.stages(), schedule.slices);
  run.model.shape.type = sizes.type;
  // Activations are most of what a rank holds.
  run.model.batch = 16;
  run.model.recompute = sizes.recompute;
  SetWeightVersions(schedule, &run.model);
  ModelSpec spec = SpecOf(run.model);
  if (sizes.experts) AddExperts(&spec, &run.model);

  LowerOptions lower;
  lower.costs = PassCosts::Uniform(
      sizes.pp, schedule.vpp(),
      {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  if (schedule.replicas > 1) lower.data_parallel = DataParallel::kDdp;
  lower.gradient_bytes.assign(schedule.stages(), 4);
  lower.parameter_bytes.assign(schedule.stages(), 4);
  lower.optimizer =
      schedule.update_every > 0 ? OptimizerMode::kNone : sizes.optimizer;
  lower.iterations = 2;
  absl::StatusOr<Program> program = Lower(run.schedule, lower);
  INFO(program.status());
  REQUIRE(program.ok());
  run.program = *std::move(program);
  run.worker =
      WorkerOptionsFor(run.program, lower.data_parallel, lower.optimizer);

  TrainingSpec training;
  training.microbatch_size = static_cast<int>(run.model.batch);
  training.sequence = run.model.sequence;
  training.slices = schedule.slices;
  const absl::StatusOr<StageLayout> layout =
      EvenLayout(spec, training, sizes.pp, schedule.vpp());
  REQUIRE(layout.ok());
  MemoryOptions options;
  options.framework = ExecutorMemory(
      {.type_bytes = sizes.type == PW_FP32 ? 4 : 2,
       .recompute = sizes.recompute,
       .keeps_versions = schedule.update_every > 0,
       .keeps_last_step = lower.optimizer == OptimizerMode::kPostValidated});
  run.predicted =
      BuildScheduleMemory(spec, training, *layout, schedule, options);
  return run;
}

TrainedRun Train(const Run& run) {
  TrainingOptions options;
  options.worker = run.worker;
  options.check = false;
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(run.program, run.model, pw_cpu_kernels(), options);
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

void CheckSame(const Run& run) {
  const TrainedRun trained = Train(run);
  for (int rank = 0; rank < run.schedule->pp(); ++rank) {
    const RankMemory& predicted = run.predicted.ranks[rank];
    INFO("rank " << rank);
    CHECK(trained.resident_bytes[rank] ==
          static_cast<double>(predicted.fixed.total()));
    CHECK(trained.peak_bytes[rank] == static_cast<double>(predicted.peak()));
    // Sums in another order.
    CHECK(trained.peak_activations[rank] ==
          Approx(predicted.peak_microbatches).epsilon(1e-12));
    CHECK(predicted.activations_at_end == 0);
  }
}

TEST_CASE("execute: peaks in bytes are those of the inventory of tensors",
          "[execute][memory]") {
  for (const char* const schedule :
       {"1f1b", "gpipe", "zb-h1", "zb-h2", "zb-v"}) {
    for (const int pp : {4, 8}) {
      for (const bool recompute : {false, true}) {
        INFO(schedule << " pp " << pp << " recompute " << recompute);
        CheckSame(MakeRun({.schedule = schedule,
                           .pp = pp,
                           .style = pp == 4 ? PW_GPT : PW_LLAMA,
                           .recompute = recompute}));
      }
    }
  }
}

TEST_CASE("execute: the inventory holds for types, slices, experts and pairs",
          "[execute][memory]") {
  const Sizes all[] = {
      {.schedule = "zb-h1", .type = PW_BF16},
      {.schedule = "1f1b", .style = PW_GPT, .type = PW_BF16, .recompute = true},
      {.schedule = "seq1f1b", .slices = 2},
      {.schedule = "seq1f1b", .type = PW_BF16, .recompute = true, .slices = 2},
      {.schedule = "interleaved-1f1b"},
      {.schedule = "dualpipe"},
      {.schedule = "dualpipe-v", .recompute = true},
      {.schedule = "zb-v", .experts = true},
      {.schedule = "1f1b", .style = PW_GPT, .experts = true}};
  for (const Sizes& sizes : all) {
    INFO(sizes.schedule << " recompute " << sizes.recompute << " type "
                        << sizes.type << " slices " << sizes.slices
                        << " experts " << sizes.experts);
    CheckSame(MakeRun(sizes));
  }
}

}  // namespace
}  // namespace pipewright
