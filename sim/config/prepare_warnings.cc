#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {
namespace {

bool HasPass(const Schedule& schedule, PassKind kind) {
  const auto is_kind = [kind](Pass pass) { return pass.kind() == kind; };
  for (const auto& order : schedule.orders) {
    if (std::any_of(order->begin(), order->end(), is_kind)) return true;
  }
  return false;
}

}  // namespace

void WarnOfIdleOptions(const RunConfig& config, const RunSizes& sizes,
                       const Schedule& schedule, bool has_model,
                       std::vector<std::string>* warnings) {
  const auto warn = [&](bool idle, absl::string_view field,
                        absl::string_view reason) {
    if (!idle) return;
    warnings->push_back(
        absl::StrCat(config.Field(field), " has no effect ", reason));
  };
  const CostChoice& costs = config.costs;
  const StrategyChoice& strategy = config.strategy;
  const OptimizerMode optimizer =
      strategy.optimizer.value_or(OptimizerMode::kNone);
  const bool steps =
      optimizer != OptimizerMode::kNone || schedule.update_every > 0;
  warn(costs.prediction_s && schedule.update_every != 1,
       "costs.prediction_time", "unless every backward is a step of its own");
  warn(costs.optimizer_s && !steps, "costs.optimizer_time",
       "with strategy.optimizer none");
  warn(costs.validation_s && optimizer != OptimizerMode::kPostValidated,
       "costs.validation_time", "unless strategy.optimizer is post-validated");
  warn(strategy.validation && optimizer != OptimizerMode::kPostValidated,
       "strategy.validation", "unless strategy.optimizer is post-validated");
  warn(costs.rollback_s && strategy.rollback_iterations.empty(),
       "costs.rollback_time", "without strategy.rollback_iterations");
  const bool shards = strategy.data_parallel == DataParallel::kZero2 ||
                      strategy.data_parallel == DataParallel::kFsdp;
  warn(strategy.shard_blocks && !shards, "strategy.shard_blocks",
       "unless strategy.data_parallel is zero2 or fsdp");
  warn(strategy.sequence && !has_model && !strategy.microbatch_size,
       "strategy.sequence", "without a model or strategy.microbatch_size");
  warn(strategy.microbatch_size && !has_model && !strategy.sequence,
       "strategy.microbatch_size", "without a model or strategy.sequence");
  const bool has_system = config.system.given();
  const char* no_system =
      costs.p2p_s ? "with costs.p2p, a pure delay" : "without a system";
  warn(costs.hop_bytes && !has_system, "costs.hop_bytes", no_system);
  warn(config.network && !has_system, "network", no_system);
  warn(costs.offload_s && !HasPass(schedule, PassKind::kOffload),
       "costs.uniform.offload", "in a schedule without O passes");
  warn(costs.load_s && !HasPass(schedule, PassKind::kLoad),
       "costs.uniform.load", "in a schedule without L passes");
  warn(costs.gradient_bytes && sizes.dp == 1 && schedule.replicas == 1,
       "costs.gradient_bytes", "with dp 1");
}

}  // namespace pipewright
