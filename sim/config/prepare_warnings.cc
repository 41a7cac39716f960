#include "absl/strings/str_cat.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {

void WarnOfDevice(const RunConfig& config, const PreparedNetwork& network,
                  const PreparedCosts& costs,
                  std::vector<std::string>* warnings) {
  const std::optional<ShapeParams>& shape = network.shape;
  if (!costs.analytic || !shape || shape->device_name.empty() ||
      shape->device_name == costs.analytic->device.device_name) {
    return;
  }
  warnings->push_back(absl::StrCat(
      config.Field("costs.analytic.device"), ": times and memory are those of ",
      costs.analytic->device.device_name, ", links those of ", shape->name,
      " (", shape->device_name, ")"));
}

void WarnOfGaps(const RunConfig& config, const RunSizes& sizes,
                const Schedule& schedule, int zero,
                std::vector<std::string>* warnings) {
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
  if (sizes.cp > 1 && strategy.data_parallel == DataParallel::kOdc) {
    warnings->push_back(absl::StrCat(
        config.Field("strategy.cp"),
        ": pulls and pushes of odc run over dp alone; what cp adds takes no "
        "time"));
  }
}

}  // namespace pipewright
