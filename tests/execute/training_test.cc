// Gradients of every schedule against the sequential run.
#include "execute/training.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <optional>

#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

// A few layers that take next to no time.
ExecutedModel SmallModel(PwStyle style, int stages, int slices) {
  ExecutedModel model;
  model.shape = {.style = style,
                 .type = PW_FP32,
                 .hidden = 32,
                 .heads = 4,
                 .kv_heads = style == PW_LLAMA ? 2 : 4,
                 .head_dim = 8,
                 .ffn = 48,
                 .vocabulary = 61,
                 .sequence = 24,
                 .causal = 1,
                 .tp = 1,
                 .epsilon = 1e-5f,
                 .rotary_base = 10000};
  model.batch = 1;
  model.sequence = 24;
  model.slices = slices;
  model.stages = EvenStages(2 * stages, stages);
  model.clip_norm = 1;
  return model;
}

struct Setup {
  std::shared_ptr<const Schedule> schedule;
  LowerOptions lower;
  ExecutedModel model;
};

// Nothing where the schedule cannot take these sizes.
std::optional<Setup> MakeSetup(const ScheduleInfo& info, int pp,
                               int microbatches, PwStyle style) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = info.default_vpp;
  params.microbatches = microbatches;
  if (info.slice_factor) params.slices = 3;
  absl::StatusOr<Schedule> built = BuildSchedule(info.name, params);
  if (!built.ok() || 24 % built->slices != 0) return std::nullopt;
  Setup setup;
  setup.model = SmallModel(style, built->stages(), built->slices);
  setup.schedule = std::make_shared<const Schedule>(*std::move(built));
  const int stages = setup.schedule->stages();
  setup.lower.costs = PassCosts::Uniform(
      pp, setup.schedule->vpp(),
      {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  setup.lower.gradient_bytes.assign(stages, 4);
  setup.lower.parameter_bytes.assign(stages, 4);
  if (setup.schedule->replicas > 1) {
    setup.lower.data_parallel = DataParallel::kDdp;
  }
  setup.lower.optimizer = OptimizerMode::kSynchronised;
  setup.lower.iterations = 2;
  return setup;
}

TrainedRun Train(const Setup& setup, ExecuteOptions execute = {}) {
  const absl::StatusOr<Program> program = Lower(setup.schedule, setup.lower);
  INFO(program.status());
  REQUIRE(program.ok());
  const absl::StatusOr<TrainedRun> trained = TrainThreads(
      *program, setup.model, pw_cpu_kernels(),
      {.execute = execute,
       .worker = WorkerOptionsFor(*program, setup.lower.data_parallel,
                                  setup.lower.optimizer, 1)});
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

void CheckTrained(const TrainedRun& trained) {
  const TrainingCheck& check = trained.check;
  INFO("loss " << check.loss_error << " gradients " << check.gradient_error
               << " weights " << check.weight_error << " order "
               << check.same_order << " bits " << check.same_bits);
  CHECK(check.ok());
  // One thread a rank and no atomics: the CPU owes the bits.
  CHECK((!check.same_order || check.same_bits));
  CHECK(check.losses.size() == 2);
  // Random tokens: a guess among the vocabulary.
  CHECK(check.losses[0] == Approx(std::log(61.0)).epsilon(0.2));
}

TEST_CASE("execute: every synchronous schedule trains as without a pipeline",
          "[execute]") {
  int exact = 0;
  int trained = 0;
  for (const ScheduleInfo* info : AllSchedules()) {
    int shapes = 0;
    for (const int pp : {2, 4}) {
      for (const int microbatches : {2 * pp, 4 * pp}) {
        const std::optional<Setup> setup =
            MakeSetup(*info, pp, microbatches,
                      microbatches == 2 * pp ? PW_LLAMA : PW_GPT);
        if (!setup || setup->schedule->update_every > 0) continue;
        INFO(info->name << " pp " << pp << " microbatches " << microbatches);
        const TrainedRun run = Train(*setup);
        CheckTrained(run);
        CHECK(run.peak_activations == PeakActivations(*setup->schedule, 1));
        ++shapes;
        ++trained;
        exact += run.check.same_bits ? 1 : 0;
      }
    }
    if (shapes == 0) WARN(info->name << ": no shape tried");
  }
  CHECK(trained > 80);
  CHECK(exact > 60);
}

}  // namespace
}  // namespace pipewright
