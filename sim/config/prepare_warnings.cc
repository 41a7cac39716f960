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

bool HasPair(const Schedule& schedule) {
  const auto is_pair = [](Pass pass) { return pass.joint_with_next(); };
  for (const auto& order : schedule.orders) {
    if (std::any_of(order->begin(), order->end(), is_pair)) return true;
  }
  return false;
}

}  // namespace

void WarnOfDevice(const RunConfig& config,
                  const std::optional<AnalyticOptions>& analytic,
                  const std::optional<ShapeParams>& shape,
                  std::vector<std::string>* warnings) {
  if (!analytic || !shape || shape->device_name.empty() ||
      shape->device_name == analytic->device.device_name) {
    return;
  }
  warnings->push_back(absl::StrCat(
      config.Field("costs.analytic.device"), ": times and memory are those of ",
      analytic->device.device_name, ", links those of ", shape->name, " (",
      shape->device_name, ")"));
}

void WarnOfIdleOptions(const RunConfig& config, const RunSizes& sizes,
                       const Schedule& schedule, bool has_model, int zero,
                       std::vector<std::string>* warnings) {
  const auto warn = [&](bool idle, absl::string_view field,
                        absl::string_view reason) {
    if (!idle) return;
    warnings->push_back(
        absl::StrCat(config.Field(field), " has no effect ", reason));
  };
  const CostChoice& costs = config.costs;
  const StrategyChoice& strategy = config.strategy;
  const OptimizerMode optimizer = OptimizerOf(config, schedule);
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
  warn(strategy.shard_blocks && zero < 2, "strategy.shard_blocks",
       "unless strategy.data_parallel is zero2 or fsdp");
  warn(strategy.sequence && !has_model && !strategy.microbatch_size,
       "strategy.sequence", "without a model or strategy.microbatch_size");
  warn(strategy.microbatch_size && !has_model && !strategy.sequence,
       "strategy.microbatch_size", "without a model or strategy.sequence");
  const char* no_model = "without a model";
  const bool bare = !has_model;
  warn(bare && strategy.ep.value_or(1) > 1, "strategy.ep", no_model);
  warn(bare && strategy.sequence_parallel, "strategy.sequence_parallel",
       no_model);
  warn(
      bare && strategy.recompute.value_or(Recompute::kNone) != Recompute::kNone,
      "strategy.recompute", no_model);
  warn(bare && strategy.zero, "strategy.zero", no_model);
  warn(bare && strategy.memory_context_bytes, "strategy.memory_context",
       no_model);
  warn(bare && strategy.fragmentation, "strategy.fragmentation", no_model);
  warn(bare && config.system.memory_bytes, "system.memory", no_model);
  const ShardBlocks blocks = ShardBlocksOf(config, schedule);
  if (has_model && zero == 3 && sizes.dp > 1 && blocks != ShardBlocks::kPass) {
    warnings->push_back(
        absl::StrCat(config.Field("strategy.shard_blocks"),
                     ": a chunk stays gathered for a ",
                     blocks == ShardBlocks::kRun ? "run" : "unit",
                     ", but memory counts two gathered layers"));
  }
  if (has_model && zero >= 1 && sizes.cp > 1) {
    warnings->push_back(absl::StrCat(
        config.Field(strategy.zero ? "strategy.zero"
                                   : "strategy.data_parallel"),
        ": memory and the optimizer step are sharded over dp * cp, but "
        "messages for it run over dp alone"));
  }
  warn(strategy.zero.value_or(0) >= 1 && sizes.dp * sizes.cp == 1,
       "strategy.zero", "with dp * cp = 1");
  const Recompute recompute = strategy.recompute.value_or(Recompute::kNone);
  if (has_model && recompute != Recompute::kNone && !costs.analytic &&
      !costs.recompute_s) {
    warnings->push_back(absl::StrCat(
        config.Field("strategy.recompute"),
        ": saves memory, but the given pass times are taken as they are; "
        "costs.uniform.recompute (--recompute-time) adds what the "
        "recomputation "
        "takes to backward_input"));
  }
  warn(has_model && recompute == Recompute::kSelective &&
           strategy.flash_attention.value_or(true),
       "strategy.recompute", "with flash attention, which stores no scores");
  warn(strategy.sequence_parallel.value_or(false) && sizes.tp == 1,
       "strategy.sequence_parallel", "with tp 1");
  if (has_model && sizes.cp > 1) {
    warnings->push_back(absl::StrCat(
        config.Field("strategy.cp"),
        ": gradients are reduced over dp alone; the part of the ring over cp "
        "takes no time"));
  }
  warn(bare && strategy.flash_attention, "strategy.attention", no_model);
  warn(bare && strategy.precision, "strategy.precision", no_model);
  warn(bare && !strategy.layers.empty(), "strategy.layers", no_model);
  warn(bare && strategy.layout, "strategy.layout", no_model);
  warn(bare && strategy.split, "strategy.split", no_model);
  warn(bare && strategy.vocabulary, "strategy.vocabulary", no_model);
  warn(!strategy.recompute_chunks.empty() &&
           strategy.recompute.value_or(Recompute::kNone) == Recompute::kNone,
       "strategy.recompute_chunks", "unless strategy.recompute is given");
  const bool has_system = config.system.given();
  const char* no_system =
      costs.p2p_s ? "with costs.p2p, a pure delay" : "without a system";
  warn(costs.hop_bytes && !has_system, "costs.hop_bytes", no_system);
  warn(config.network && !has_system, "network", no_system);
  warn(costs.offload_s && !HasPass(schedule, PassKind::kOffload),
       "costs.uniform.offload", "in a schedule without O passes");
  warn(costs.load_s && !HasPass(schedule, PassKind::kLoad),
       "costs.uniform.load", "in a schedule without L passes");
  warn(costs.pair_factor && !HasPair(schedule), "costs.pair_factor",
       "in a schedule without overlapped pairs (X&Y)");
  warn(costs.gradient_bytes && sizes.dp == 1 && schedule.replicas == 1,
       "costs.gradient_bytes", "with dp 1");
}

}  // namespace pipewright
