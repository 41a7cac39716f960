// A run as DeepSpeed's JSON (frameworks/deepspeed.csv). Model, stages, tensor
// parallelism and devices are the user's code and launcher: EmittedArgs::beside
// has them.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/json.h"
#include "sim/config/config_fields.h"
#include "sim/foreign/emission.h"
#include "sim/model/precision.h"
#include "sim/schedule/schedule.h"

namespace pipewright {
namespace {

// The stage of ZeRO that a sharding is.
int StageOf(DataParallel sharding) {
  switch (sharding) {
    case DataParallel::kZero1:
      return 1;
    case DataParallel::kZero2:
      return 2;
    case DataParallel::kFsdp:
      return 3;
    default:
      return 0;
  }
}

// False if the states of the optimizer are where JSON cannot have them.
bool AddOptimizerDevice(const StrategyChoice& strategy, Json* zero) {
  const OptimizerPlacement placement =
      strategy.optimizer_placement.value_or(OptimizerPlacement::kGpu);
  if (placement == OptimizerPlacement::kGpu) return true;
  Json device = {{"device", "cpu"}};
  if (placement == OptimizerPlacement::kTwinFlow) {
    if (!strategy.optimizer_ratio) return false;
    device["ratio"] = *strategy.optimizer_ratio;
  } else if (placement != OptimizerPlacement::kZeroOffload) {
    return false;
  }
  (*zero)["offload_optimizer"] = std::move(device);
  return true;
}

}  // namespace

absl::Status EmitDeepSpeed(Emission* emission) {
  const StrategyChoice& strategy = emission->strategy();
  const TrainingSpec& training = emission->training;
  const bool pipeline = *strategy.pp > 1;
  const int stage = StageOf(DataParallelOf(strategy));
  Json zero = {{"stage", stage}};
  const bool says_device = AddOptimizerDevice(strategy, &zero);
  const absl::Status refused = RefuseUnsayable(
      "deepspeed",
      {{pipeline && emission->run.schedule.lowered->name != "1f1b",
        "a schedule other than 1f1b"},
       {pipeline && stage > 1, "ZeRO 2 or 3 with a pipeline"},
       {pipeline && strategy.overlap_gradients.value_or(false),
        "overlapped gradients with a pipeline"},
       {training.precision != Precision::kBf16, "a precision other than bf16"},
       {training.recompute != Recompute::kNone &&
            training.recompute != Recompute::kFull,
        "recomputation other than none and full"},
       {training.recompute_layers > 0 || training.recompute_every > 1,
        "recomputation of some layers"},
       {strategy.offload.value_or(OffloadMode::kNone) != OffloadMode::kNone,
        "offloaded activations"},
       {OptimizerRuleOf(strategy).kind != OptimizerKind::kAdam,
        "an optimizer other than Adam"},
       {!says_device, "this place of the optimizer's states"}});
  if (!refused.ok()) return refused;
  emission->Hold({"strategy.framework", "strategy.microbatch_size",
                  "strategy.microbatches", "strategy.offload",
                  "strategy.optimizer_placement", "strategy.optimizer_ratio",
                  "strategy.precision"});
  if (training.dp > 1) emission->Hold({"strategy.data_parallel"});
  if (stage > 0) {
    zero["overlap_comm"] = strategy.overlap_gradients.value_or(false);
    emission->Hold({"strategy.overlap_gradients"});
  }
  Json json = {{"train_batch_size", emission->batch()},
               {"train_micro_batch_size_per_gpu", training.microbatch_size},
               {"gradient_accumulation_steps", *strategy.microbatches},
               {"bf16", {{"enabled", true}}},
               {"zero_optimization", std::move(zero)}};
  const std::optional<int>& gradient =
      emission->config.strategy.gradient_bytes_per_parameter;
  if (gradient) {
    json["data_types"] = {
        {"grad_accum_dtype", *gradient == 4 ? "fp32" : "bf16"}};
    emission->Hold({"strategy.gradient_bytes_per_parameter"});
  }
  // Without a pipeline the model's own code says what is computed again.
  if (pipeline) {
    json["pipeline"] = {{"activation_checkpoint_interval",
                         training.recompute == Recompute::kFull ? 1 : 0}};
    emission->Hold({"strategy.recompute"});
  }
  emission->out.text = absl::StrCat(json.dump(2), "\n");
  return absl::OkStatus();
}

}  // namespace pipewright
