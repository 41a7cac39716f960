#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/config/prepare_parts.h"
#include "sim/config/profile_device.h"

namespace pipewright {
namespace {

// Times measured on one device and links of another are no system that exists.
void WarnOfProfile(const RunConfig& config, const PreparedProfile& profile,
                   const ShapeParams& shape,
                   std::vector<std::string>* warnings) {
  if (profile.profile->sources.empty() ||
      IsOfDevice(*profile.profile, shape.device_name)) {
    return;
  }
  std::set<std::string> devices;
  for (const ProfileSource& source : profile.profile->sources) {
    devices.insert(source.device.empty() ? "a device that it does not name"
                                         : source.device);
  }
  warnings->push_back(
      absl::StrCat(config.Field("costs.profile"), ": times are those of ",
                   absl::StrJoin(devices, ", "), ", links and memory those of ",
                   shape.name, " (", shape.device_name, ")"));
}

}  // namespace

void WarnOfDevice(const RunConfig& config, const PreparedNetwork& network,
                  const PreparedCosts& costs,
                  std::vector<std::string>* warnings) {
  const std::optional<ShapeParams>& shape = network.shape;
  if (!shape || shape->device_name.empty()) return;
  if (costs.profile) WarnOfProfile(config, *costs.profile, *shape, warnings);
  if (!costs.analytic ||
      shape->device_name == costs.analytic->device.device_name) {
    return;
  }
  warnings->push_back(absl::StrCat(
      config.Field("costs.analytic.device"), ": times and memory are those of ",
      costs.analytic->device.device_name, ", links those of ", shape->name,
      " (", shape->device_name, ")"));
}

void WarnOfGaps(const RunConfig& config, const RunSizes& sizes,
                const TrainingSpec& training, const Schedule& schedule,
                int zero, std::vector<std::string>* warnings) {
  const CostChoice& costs = config.costs;
  const StrategyChoice& strategy = config.strategy;
  const ShardBlocks blocks = ShardBlocksOf(config, schedule);
  if (zero == 3 && sizes.holders() > 1 && blocks != ShardBlocks::kPass &&
      blocks != ShardBlocks::kLayer) {
    warnings->push_back(
        absl::StrCat(config.Field("strategy.shard_blocks"),
                     ": a chunk stays gathered for a ",
                     blocks == ShardBlocks::kRun ? "run" : "unit",
                     ", but memory counts two gathered layers"));
  }
  const Recompute recompute = strategy.recompute.value_or(Recompute::kNone);
  if (recompute != Recompute::kNone && !costs.analytic && !costs.profile &&
      !costs.recompute_s) {
    warnings->push_back(
        absl::StrCat(config.Field("strategy.recompute"),
                     ": saves memory, but the given pass times stay as they "
                     "are; costs.uniform.recompute (--recompute-time) adds the "
                     "time of the recomputation to backward_input"));
  }
  // Then a rank has several devices with the same experts and no replicas.
  if (training.ep > 1 && sizes.holders() == 1 && training.expert_shards() > 1) {
    warnings->push_back(absl::StrCat(
        config.Field("strategy.etp"), ": ", training.expert_shards(),
        " devices of a rank hold the same experts, whose gradients they would "
        "reduce; that takes no time here"));
  }
  if (costs.analytic && strategy.fp8_attention.value_or(false) &&
      strategy.precision.value_or(Precision::kBf16) == Precision::kBf16) {
    warnings->push_back(absl::StrCat(
        config.Field("strategy.fp8_attention"),
        ": true with strategy.precision bf16, of which no recipe has attention "
        "in 8 bit beside linear layers in 16 bit"));
  }
  const bool is_fused =
      costs.analytic_kernels.value_or(FrameworkKernels::kFused) ==
      FrameworkKernels::kFused;
  if (costs.analytic && is_fused && training.execution.overlap_tensor &&
      training.tp > 1 && training.sequence_parallel &&
      config.model.lora_rank.value_or(0) == 0 &&
      schedule.Has(PassKind::kBackwardWeight)) {
    warnings->push_back(absl::StrCat(
        config.Field("strategy.overlap_tensor"),
        ": reductions of B are taken to run beside W, which is a pass of its "
        "own here; Transformer Engine refuses both together"));
  }
}

}  // namespace pipewright
