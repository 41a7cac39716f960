#include "tests/support/small_training.h"

#include <utility>

#include "execute/train/training_wire.h"
#include "sim/base/status.h"
#include "sim/schedule/registry.h"

namespace pipewright::testing {

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

absl::StatusOr<SmallTraining> MakeSmallTraining(const std::string& schedule,
                                                int pp, int dp,
                                                WaitRule wait_rule,
                                                int iterations,
                                                DataParallel data_parallel) {
  PW_ASSIGN_OR_RETURN(const ScheduleMatch match, FindSchedule(schedule));
  ScheduleParams params;
  params.pp = pp;
  params.vpp = match.info->default_vpp;
  params.microbatches = 2 * pp;
  PW_ASSIGN_OR_RETURN(Schedule built, BuildSchedule(schedule, params));
  SmallTraining training;
  training.model = SmallModel(PW_LLAMA, built.stages(), built.slices);
  training.schedule = std::make_shared<const Schedule>(std::move(built));
  const int stages = training.schedule->stages();
  LowerOptions lower;
  lower.costs = PassCosts::Uniform(
      pp, training.schedule->vpp(),
      {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  lower.gradient_bytes.assign(stages, 4);
  lower.parameter_bytes.assign(stages, 4);
  if (dp > 1 || training.schedule->directions > 1) {
    lower.data_parallel = data_parallel;
  }
  lower.replicas = dp;
  // One that is never flushed steps by itself.
  lower.optimizer = training.schedule->update_every > 0
                        ? OptimizerMode::kNone
                        : OptimizerMode::kSynchronised;
  lower.wait_rule = wait_rule;
  lower.iterations = iterations;
  PW_ASSIGN_OR_RETURN(training.program, Lower(training.schedule, lower));
  training.options.worker =
      WorkerOptionsFor(training.program, lower.data_parallel, lower.optimizer);
  return training;
}

std::string BitsOf(const TrainedRun& trained) {
  WireWriter writer;
  for (const WorkerRecord& record : trained.records) {
    WorkerRecord bits = record;
    // How many messages wait hangs on the transport and the moment.
    bits.message_bytes = 0;
    PutRecord(bits, &writer);
  }
  return writer.bytes();
}

}  // namespace pipewright::testing
