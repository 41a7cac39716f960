// The one list of RunConfig's fields with their paths and legal values;
// reading (config_io.cc) and printing (run_config.cc) both walk it.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/base/quantity.h"
#include "sim/config/choice_row.h"
#include "sim/config/execution_fields.h"
#include "sim/config/model_fields.h"
#include "sim/config/reality_fields.h"
#include "sim/config/run_config.h"
#include "sim/config/sequence_fields.h"
#include "sim/config/system_fields.h"
#include "sim/schedule/pass.h"

namespace pipewright {

inline const std::vector<ChoiceRow>& DataParallelChoices() {
  static const std::vector<ChoiceRow> rows = [] {
    std::vector<ChoiceRow> all;
    for (const DataParallelTraits& mode : kDataParallelModes) {
      all.push_back({mode.name, static_cast<int>(mode.mode)});
    }
    for (const char* name : {"hsdp", "hpz"}) {
      all.push_back({name, 0, false});
    }
    return all;
  }();
  return rows;
}

inline const std::vector<ChoiceRow>& ShardBlocksChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"pass", static_cast<int>(ShardBlocks::kPass)},
      {"run", static_cast<int>(ShardBlocks::kRun)},
      {"unit", static_cast<int>(ShardBlocks::kUnit)},
      {"layer", static_cast<int>(ShardBlocks::kLayer)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& GatherTypeChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"bf16", static_cast<int>(GatherType::kBf16)},
      {"fp32", static_cast<int>(GatherType::kFp32)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& PullFlowsChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"together", static_cast<int>(PullFlows::kTogether)},
      {"apart", static_cast<int>(PullFlows::kApart)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& WaitingChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"buffered", static_cast<int>(WaitRule::kBuffered)},
      {"rendezvous", static_cast<int>(WaitRule::kRendezvous)},
      {"batched", static_cast<int>(WaitRule::kBatched)},
      {"stepped", static_cast<int>(WaitRule::kStepped)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& CollectivesChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"ring", static_cast<int>(CollectiveAlgorithm::kRing)},
      {"tree", static_cast<int>(CollectiveAlgorithm::kTree)},
      {"hierarchical", static_cast<int>(CollectiveAlgorithm::kHierarchical)},
      {"fastest", static_cast<int>(CollectiveAlgorithm::kFastest)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& OptimizerChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"none", static_cast<int>(OptimizerMode::kNone)},
      {"synchronised", static_cast<int>(OptimizerMode::kSynchronised)},
      {"post-validated", static_cast<int>(OptimizerMode::kPostValidated)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& OffloadChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"none", static_cast<int>(OffloadMode::kNone)},
      {"selective", static_cast<int>(OffloadMode::kSelective)},
      {"full", static_cast<int>(OffloadMode::kFull)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& CopySharingChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"together", static_cast<int>(CopySharing::kTogether)},
      {"in-turn", static_cast<int>(CopySharing::kInTurn)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& OptimizerPlacementChoices() {
  static const std::vector<ChoiceRow> rows = [] {
    std::vector<ChoiceRow> all;
    for (const PlacementTraits& traits : kOptimizerPlacements) {
      all.push_back({traits.name, static_cast<int>(traits.placement)});
    }
    return all;
  }();
  return rows;
}

inline const std::vector<ChoiceRow>& GradientFlushChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"blocking", static_cast<int>(GradientFlush::kBlocking)},
      {"asynchronous", static_cast<int>(GradientFlush::kAsynchronous)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& RecomputeChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"none", static_cast<int>(Recompute::kNone)},
      {"selective", static_cast<int>(Recompute::kSelective)},
      {"norm-activation", static_cast<int>(Recompute::kNormActivation)},
      {"op-selective", static_cast<int>(Recompute::kOpSelective)},
      {"full", static_cast<int>(Recompute::kFull)},
  };
  return rows;
}

// Of TrainingSpec::flash_attention.
inline const std::vector<ChoiceRow>& AttentionChoices() {
  static const std::vector<ChoiceRow> rows = {{"flash", 1}, {"unfused", 0}};
  return rows;
}

inline const std::vector<ChoiceRow>& SwitchChoices() {
  static const std::vector<ChoiceRow> rows = {{"on", 1}, {"off", 0}};
  return rows;
}

inline const std::vector<ChoiceRow>& ClockChoices() {
  static const std::vector<ChoiceRow> rows = {{"sustained", 1}, {"burst", 0}};
  return rows;
}

inline const std::vector<ChoiceRow>& KernelsChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"fused", static_cast<int>(FrameworkKernels::kFused)},
      {"compiled", static_cast<int>(FrameworkKernels::kCompiled)},
      {"eager", static_cast<int>(FrameworkKernels::kEager)}};
  return rows;
}

inline const std::vector<ChoiceRow>& PrecisionChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"bf16", static_cast<int>(Precision::kBf16)},
      {"fp8", static_cast<int>(Precision::kFp8)},
      {"fp8-tensorwise", static_cast<int>(Precision::kFp8Tensorwise)},
      {"fp8-block", static_cast<int>(Precision::kFp8Block)},
      {"mxfp8", static_cast<int>(Precision::kMxfp8)},
      {"nvfp4", static_cast<int>(Precision::kNvfp4)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& FrameworkChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"megatron", static_cast<int>(Framework::kMegatron)},
      {"torchtitan", static_cast<int>(Framework::kTorchtitan)},
      {"deepspeed", static_cast<int>(Framework::kDeepSpeed)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& SplitChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"even", static_cast<int>(LayerSplit::kEven)},
      {"balanced", static_cast<int>(LayerSplit::kBalanced)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& VocabularyChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"ends", static_cast<int>(VocabularyPlacement::kEnds)},
      {"spread", static_cast<int>(VocabularyPlacement::kSpread)},
  };
  return rows;
}

inline const std::vector<ChoiceRow>& ValidationChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"no-wait", static_cast<int>(ValidationPlace::kNoWait)},
      {"released", static_cast<int>(ValidationPlace::kReleased)},
  };
  return rows;
}

// Of each value of a list of factors; 0 is one too.
struct FactorRange {
  double least = 1e-6;
  double most = 1e6;
};
inline constexpr FactorRange kFactors;
// Whether a factor may also be 0.
enum MayBeZero : bool { kNeverZero, kMayBeZero };

// `visit` has Text, Int and Real (minimum and maximum), Bool, Quantity and
// Quantities (RangeOf the unit), Reals (kFactors), Ints, Texts, Choice, Pairs
// and Section (is it there?).
template <typename Config, typename Visitor>
void VisitFields(Config& config, Visitor& visit) {
  // Of a sum that is checked once the others are known (CheckBytes).
  constexpr int kAny = std::numeric_limits<int>::max();
  // What prices and limits count stays far from a double's end.
  constexpr double kMost = 1e12;
  // Three passes each are as many as a schedule may have.
  constexpr int kMostMicrobatches = kAny / 3;
  // As many ranks as BuildSchedule takes, as many replicas as BuildCluster
  // takes devices.
  constexpr int kMostRanks = 1 << 16;
  constexpr int kMostReplicas = 1 << 20;
  // More would only repeat the period; the limit keeps a slip of the finger
  // from running for days.
  constexpr int kMostIterations = 10000;
  auto& model = config.model;
  visit.Text("model.preset", model.preset);
  visit.Text("model.hf", model.hf);
  for (const ModelSizeRow& row : ModelSizeRows()) {
    visit.Int(row.path, model.*row.given, row.least, row.most);
  }
  for (const ModelPropertyRow& row : ModelPropertyRows()) {
    visit.Bool(row.path, model.*row.given);
  }

  VisitSystem(config, visit);

  auto& strategy = config.strategy;
  visit.Int("strategy.pp", strategy.pp, 1, kMostRanks);
  visit.Int("strategy.vpp", strategy.vpp, 1, Pass::kMaxChunks);
  // No more devices than replicas at most.
  visit.Int("strategy.tp", strategy.tp, 1, kMostReplicas);
  visit.Bool("strategy.sequence_parallel", strategy.sequence_parallel);
  visit.Bool("strategy.scatter_gather", strategy.scatter_gather);
  visit.Int("strategy.cp", strategy.cp, 1, kMostReplicas);
  visit.Int("strategy.ep", strategy.ep, 1, kMostReplicas);
  visit.Int("strategy.dp", strategy.dp, 1, kMostReplicas);
  auto& classes = strategy.dp_classes;
  visit.Ints("strategy.dp_classes.replicas", classes.replicas, 1,
             kMostReplicas);
  visit.Ints("strategy.dp_classes.microbatches", classes.microbatches, 1,
             kMostMicrobatches);
  visit.Reals("strategy.dp_classes.slower", classes.slower, kNeverZero);
  visit.Ints("strategy.dp_classes.slow_rank", classes.slow_rank, -1,
             kMostRanks - 1);
  visit.Reals("strategy.dp_classes.microbatch_factor",
              classes.microbatch_factor);
  visit.Texts("strategy.dp_classes.schedule", classes.schedule);
  visit.Text("strategy.global_batch", strategy.global_batch);
  visit.Int("strategy.microbatches", strategy.microbatches, 1,
            kMostMicrobatches);
  visit.Int("strategy.microbatch_size", strategy.microbatch_size, 1, kAny);
  visit.Int("strategy.sequence", strategy.sequence, 1, kAny);
  visit.Int("strategy.slices", strategy.slices, 1, Pass::kMaxSlices);
  visit.Choice("strategy.data_parallel", strategy.data_parallel,
               DataParallelChoices());
  visit.Bool("strategy.overlap_gradients", strategy.overlap_gradients);
  visit.Choice("strategy.shard_blocks", strategy.shard_blocks,
               ShardBlocksChoices());
  visit.Bool("strategy.reshard_after_forward", strategy.reshard_after_forward);
  visit.Int("strategy.shard_group", strategy.shard_group, 1, kMostReplicas);
  visit.Int("strategy.near_group", strategy.near_group, 1, kMostReplicas);
  visit.Choice("strategy.gather_type", strategy.gather_type,
               GatherTypeChoices());
  visit.Bool("strategy.one_comm_stream", strategy.one_comm_stream);
  visit.Choice("strategy.pull_flows", strategy.pull_flows, PullFlowsChoices());
  visit.Quantity("strategy.owner_poll", strategy.owner_poll_s, Unit::kTime);
  visit.Choice("strategy.waiting", strategy.waiting, WaitingChoices());
  visit.Choice("strategy.collectives", strategy.collectives,
               CollectivesChoices());
  visit.Texts("strategy.mapping", strategy.mapping);
  visit.Choice("strategy.optimizer", strategy.optimizer, OptimizerChoices());
  visit.Choice("strategy.validation", strategy.validation, ValidationChoices());
  visit.Ints("strategy.rollback_iterations", strategy.rollback_iterations, 0,
             kMostIterations - 1);
  visit.Choice("strategy.optimizer_placement", strategy.optimizer_placement,
               OptimizerPlacementChoices());
  visit.Real("strategy.optimizer_ratio", strategy.optimizer_ratio, 0, 1);
  visit.Int("strategy.optimizer_stride", strategy.optimizer_stride, 0,
            kMostSubgroups);
  visit.Real("strategy.subgroup_size", strategy.subgroup_size, 1, kMost);
  visit.Choice("strategy.gradient_flush", strategy.gradient_flush,
               GradientFlushChoices());
  visit.Real("strategy.max_activations", strategy.max_activations, 0, kMost);
  visit.Int("strategy.gradient_bytes_per_parameter",
            strategy.gradient_bytes_per_parameter, 1, 16);
  visit.Int("strategy.parameter_bytes_per_parameter",
            strategy.parameter_bytes_per_parameter, 1, 16);
  visit.Real("strategy.master_bytes_per_parameter",
             strategy.master_bytes_per_parameter, 0, 16);
  visit.Real("strategy.moment_bytes_per_parameter",
             strategy.moment_bytes_per_parameter, 0, 16);
  visit.Choice("strategy.recompute", strategy.recompute, RecomputeChoices());
  visit.Ints("strategy.recompute_chunks", strategy.recompute_chunks, 0,
             Pass::kMaxChunks - 1);
  visit.Int("strategy.recompute_layers", strategy.recompute_layers, 1,
            kMostLayers);
  visit.Bool("strategy.recompute_stops_early", strategy.recompute_stops_early);
  visit.Choice("strategy.attention", strategy.flash_attention,
               AttentionChoices());
  visit.Choice("strategy.precision", strategy.precision, PrecisionChoices());
  visit.Bool("strategy.fused_cross_entropy", strategy.fused_cross_entropy);
  visit.Bool("strategy.fused_optimizer", strategy.fused_optimizer);
  visit.Bool("strategy.plain_cross_entropy", strategy.plain_cross_entropy);
  visit.Bool("strategy.whole_gradients", strategy.whole_gradients);
  visit.Bool("strategy.shard_copies", strategy.shard_copies);
  visit.Choice("strategy.framework", strategy.framework, FrameworkChoices());
  visit.Ints("strategy.layers", strategy.layers, 0, kMostLayers);
  visit.Text("strategy.layout", strategy.layout);
  visit.Choice("strategy.split", strategy.split, SplitChoices());
  visit.Choice("strategy.vocabulary", strategy.vocabulary, VocabularyChoices());

  visit.Int("strategy.zero", strategy.zero, 0, 3);
  visit.Quantity("strategy.memory_context", strategy.memory_context_bytes,
                 Unit::kBytes);
  visit.Real("strategy.fragmentation", strategy.fragmentation, 0, 10);
  visit.Choice("strategy.offload", strategy.offload, OffloadChoices());
  visit.Ints("strategy.offload_chunks", strategy.offload_chunks, 0,
             Pass::kMaxChunks - 1);
  visit.Real("strategy.offload_fraction", strategy.offload_fraction, 0, 1);
  visit.Choice("strategy.offload_sharing", strategy.offload_sharing,
               CopySharingChoices());
  visit.Texts("strategy.offload_tensors", strategy.offload_tensors);
  VisitExecution(strategy.execution, visit);

  auto& schedule = config.schedule;
  visit.Text("schedule.name", schedule.name);
  visit.Text("schedule.file", schedule.file);
  visit.Pairs("schedule.params", schedule.params);

  auto& costs = config.costs;
  visit.Quantity("costs.uniform.forward", costs.forward_s, Unit::kTime);
  visit.Quantity("costs.uniform.backward_input", costs.backward_input_s,
                 Unit::kTime);
  visit.Quantity("costs.uniform.backward_weight", costs.backward_weight_s,
                 Unit::kTime);
  visit.Quantity("costs.uniform.backward", costs.backward_s, Unit::kTime);
  visit.Quantity("costs.uniform.recompute", costs.recompute_s, Unit::kTime);
  visit.Quantity("costs.uniform.offload", costs.offload_s, Unit::kTime);
  visit.Quantity("costs.uniform.load", costs.load_s, Unit::kTime);
  visit.Real("costs.offload_ratio", costs.offload_ratio, 0, 1e6);
  visit.Quantities("costs.per_stage.forward", costs.stage_forward_s,
                   Unit::kTime);
  visit.Quantities("costs.per_stage.backward_input",
                   costs.stage_backward_input_s, Unit::kTime);
  visit.Quantities("costs.per_stage.backward_weight",
                   costs.stage_backward_weight_s, Unit::kTime);
  visit.Quantities("costs.per_stage.backward", costs.stage_backward_s,
                   Unit::kTime);
  visit.Reals("costs.microbatch_factor", costs.microbatch_factor);
  visit.Reals("costs.slice_factor", costs.slice_factor);
  visit.Quantity("costs.p2p", costs.p2p_s, Unit::kTime);
  visit.Quantity("costs.hop_bytes", costs.hop_bytes, Unit::kBytes);
  visit.Quantity("costs.gradient_bytes", costs.gradient_bytes, Unit::kBytes);
  visit.Quantity("costs.optimizer_time", costs.optimizer_s, Unit::kTime);
  visit.Quantity("costs.validation_time", costs.validation_s, Unit::kTime);
  visit.Quantity("costs.rollback_time", costs.rollback_s, Unit::kTime);
  visit.Quantity("costs.prediction_time", costs.prediction_s, Unit::kTime);
  visit.Real("costs.held_until_weight", costs.held_until_weight, 0, 1);
  // Full overlap of equal passes is 0.5; 1 gains nothing, more is a loss.
  visit.Real("costs.pair_factor", costs.pair_factor, 0.1, 10);

  visit.Text("costs.profile", costs.profile);
  visit.Bool("costs.scale_shapes", costs.scale_shapes);
  visit.Text("costs.jitter", costs.jitter);
  visit.Int("costs.seed", costs.seed, 0, std::numeric_limits<int64_t>::max());
  visit.Choice("costs.interference", costs.interference, SwitchChoices());

  visit.Section("costs.analytic", costs.analytic);
  visit.Text("costs.analytic.device", costs.analytic_device);
  visit.Text("costs.analytic.silicon", costs.analytic_silicon);
  visit.Choice("costs.analytic.clock", costs.analytic_sustained,
               ClockChoices());
  visit.Choice("costs.analytic.kernels", costs.analytic_kernels,
               KernelsChoices());
  visit.Quantity("costs.analytic.launch_time", costs.analytic_launch_s,
                 Unit::kTime, kMostLaunchSeconds);
  visit.Real("costs.analytic.contention", costs.analytic_contention, 1, 4);
  visit.Real("costs.analytic.speed_range", costs.analytic_speed_range, 0, 1);
  visit.Real("costs.price_per_device_hour", costs.price_per_device_hour, 0,
             kMost);

  VisitSequences(config, visit);

  visit.Text("engine", config.engine);
  visit.Text("network", config.network);
  visit.Int("iterations", config.iterations, 1, kMostIterations);

  VisitReality(config, visit);
}

}  // namespace pipewright
