// How the model is trained and laid out, and the bytes that follow from it.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare_parts.h"
#include "sim/model/balanced_layout.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

// The balanced split looks at every layer and stage one by one.
// [numerics]
constexpr int64_t kMostBalanced = 4096;

absl::Status TakeRecomputeChunks(const RunConfig& config, int vpp,
                                 TrainingSpec* training) {
  const std::vector<int64_t>& chunks = config.strategy.recompute_chunks;
  if (chunks.empty()) return absl::OkStatus();
  training->recompute_chunks.assign(vpp, false);
  for (const int64_t chunk : chunks) {
    if (chunk >= vpp) {
      return BadValue(config.Field("strategy.recompute_chunks"),
                      absl::StrCat(chunk),
                      absl::StrCat("chunks from 0 to ", vpp - 1));
    }
    training->recompute_chunks[chunk] = true;
  }
  return absl::OkStatus();
}

absl::Status TakeOffloadedTensors(const RunConfig& config,
                                  TrainingSpec* training) {
  const std::vector<std::string>& tensors = config.strategy.offload_tensors;
  if (tensors.empty()) return absl::OkStatus();
  OffloadedTensors& offloaded = training->offloaded;
  offloaded = {.input = false, .attention = false, .mlp = false};
  for (const std::string& name : tensors) {
    bool* const of = name == "input"       ? &offloaded.input
                     : name == "attention" ? &offloaded.attention
                     : name == "mlp"       ? &offloaded.mlp
                                           : nullptr;
    if (of == nullptr) {
      return BadValue(config.Field("strategy.offload_tensors"), name,
                      "input, attention, mlp");
    }
    *of = true;
  }
  return absl::OkStatus();
}

// FLOPs in 16 bit that a device could do while it moves a byte of its memory:
// NVIDIA's sheet of the H100 SXM, 989 TFLOPS and 3.35 TB/s. [data sheet]
constexpr double kFlopsOfByte = 989.4e12 / 3.35e12;

// FLOPs of all passes of one slice: what a block weighs in the balanced split.
// Layers of several kinds differ in what waits for memory, which so counts too.
double BlockWeight(const ModelSpec& model, const TrainingSpec& training,
                   BlockKind kind, int64_t layer) {
  const double of_byte = model.kinds.empty() ? 0 : kFlopsOfByte;
  double weight = 0;
  for (const ModelOp& op : BlockOps(model, training, kind, layer)) {
    for (const OpWork& work : op.work) {
      weight += std::max(work.flops, of_byte * work.bytes);
    }
  }
  return weight;
}

absl::Status CheckOneChoice(const RunConfig& config) {
  const StrategyChoice& strategy = config.strategy;
  std::vector<std::string> given;
  if (!strategy.layers.empty()) given.push_back("strategy.layers");
  if (strategy.layout) given.push_back("strategy.layout");
  if (strategy.split) given.push_back("strategy.split");
  if (given.size() < 2) return absl::OkStatus();
  return BothGiven(config.Field(given[1]), config.Field(given[0]));
}

absl::StatusOr<StageLayout> Balanced(const RunConfig& config,
                                     const ModelSpec& model,
                                     const TrainingSpec& training,
                                     const std::vector<int>& rank_of_stage,
                                     const std::vector<double>& slowness) {
  const auto stages = static_cast<int64_t>(rank_of_stage.size());
  if (model.layers > kMostBalanced || stages > kMostBalanced) {
    return BadValue(config.Field("strategy.split"), "balanced",
                    absl::StrCat("even with more than ", kMostBalanced,
                                 " layers or stages"));
  }
  return BalancedLayout(
      model, training, rank_of_stage,
      [&](BlockKind kind, int64_t layer) {
        return BlockWeight(model, training, kind, layer);
      },
      slowness);
}

// Memory of weights that are gathered layer by layer.
void TakeShardedLayers(const RunConfig& config, TrainingSpec* training) {
  const StrategyChoice& strategy = config.strategy;
  const bool odc = strategy.data_parallel == DataParallel::kOdc;
  if (!odc && strategy.shard_blocks != ShardBlocks::kLayer) return;
  ShardedLayers& sharded = training->sharded;
  // Named even where it is all of them: layers are what is sharded.
  const int part = strategy.shard_group.value_or(0);
  sharded.shard_group = part > 0 ? part : training->dp;
  sharded.near_group = strategy.near_group.value_or(0);
  sharded.kept = !strategy.reshard_after_forward.value_or(true);
  sharded.one_sided = odc;
  sharded.is_fsdp2 = !odc && strategy.framework != Framework::kMegatron;
  sharded.gather_bytes = GatherBytesOf(strategy);
  // Nodes have as many at most (DGX and HGX). [data sheet]
  constexpr int kDevicesOfNode = 8;
  if (training->dp * training->tp > kDevicesOfNode) {
    sharded.devices_of_node = kDevicesOfNode;
  }
}

}  // namespace

OptimizerMode OptimizerOf(const RunConfig& config, const Schedule& schedule) {
  const bool modelled = config.costs.analytic || config.costs.profile;
  const bool whole_steps = modelled && schedule.update_every == 0 &&
                           schedule.backward != BackwardRule::kNone;
  const bool placed = config.strategy.optimizer_placement.value_or(
                          OptimizerPlacement::kGpu) != OptimizerPlacement::kGpu;
  return config.strategy.optimizer.value_or(whole_steps || placed
                                                ? OptimizerMode::kSynchronised
                                                : OptimizerMode::kNone);
}

OptimizerRule OptimizerRuleOf(const StrategyChoice& strategy) {
  OptimizerRule rule;
  rule.kind = strategy.optimizer_kind.value_or(rule.kind);
  rule.momentum_bytes =
      strategy.momentum_bytes_per_parameter.value_or(rule.momentum_bytes);
  rule.newton_schulz_steps =
      strategy.muon_steps.value_or(rule.newton_schulz_steps);
  rule.splits_qkv = strategy.muon_splits_qkv.value_or(rule.splits_qkv);
  rule.distribution = strategy.muon_distribution.value_or(rule.distribution);
  rule.tp_mode = strategy.muon_tp_mode.value_or(rule.tp_mode);
  rule.overlaps = strategy.overlap_gradients.value_or(rule.overlaps);
  return rule;
}

bool TakesSharding(const OptimizerRule& rule, DataParallel mode) {
  const DataParallelTraits& traits = TraitsOf(mode);
  if (rule.kind == OptimizerKind::kAdafactor) return !traits.shards_step;
  if (!rule.is_muon()) return true;
  return rule.distribution == MuonDistribution::kLayerWise
             ? !traits.shards_gradients
             : !traits.shards_weights;
}

absl::Status CheckOptimizerKind(const RunConfig& config) {
  const StrategyChoice& strategy = config.strategy;
  const OptimizerRule rule = OptimizerRuleOf(strategy);
  if (rule.kind == OptimizerKind::kAdam) return absl::OkStatus();
  const std::string kind = ChoiceName(OptimizerKindChoices(), rule.kind);
  const auto refused = [&](absl::string_view field, absl::string_view value,
                           absl::string_view allowed) {
    return BadValue(
        config.Field(field), value,
        absl::StrCat(allowed, " with strategy.optimizer_kind ", kind));
  };
  const DataParallel mode = DataParallelOf(strategy);
  if (!TakesSharding(rule, mode)) {
    std::vector<absl::string_view> allowed;
    for (const DataParallelTraits& row : kDataParallelModes) {
      if (TakesSharding(rule, row.mode)) allowed.push_back(row.name);
    }
    const std::string why =
        rule.is_muon() ? " (a matrix is stepped whole)"
                       : " (parts of a matrix have no rows and columns)";
    return refused(
        strategy.data_parallel ? "strategy.data_parallel" : "strategy.zero",
        TraitsOf(mode).name, absl::StrCat(absl::StrJoin(allowed, ", "), why));
  }
  if (strategy.optimizer_placement.value_or(OptimizerPlacement::kGpu) !=
      OptimizerPlacement::kGpu) {
    return refused("strategy.optimizer_placement",
                   TraitsOf(*strategy.optimizer_placement).name,
                   "gpu: hosts step by Adam");
  }
  if (strategy.optimizer == OptimizerMode::kPostValidated) {
    return refused("strategy.optimizer", "post-validated",
                   "synchronised, none: a step is undone by Adam");
  }
  if (config.costs.profile && !config.costs.optimizer_s) {
    return refused("costs.profile", *config.costs.profile,
                   "with costs.optimizer_time (--optimizer-time TIME): "
                   "profiles have Adam's step,");
  }
  return absl::OkStatus();
}

ShardBlocks ShardBlocksOf(const RunConfig& config, const Schedule& schedule) {
  return config.strategy.shard_blocks.value_or(
      schedule.unit > 0 ? ShardBlocks::kUnit : ShardBlocks::kPass);
}

DataParallel DataParallelOf(const StrategyChoice& strategy) {
  if (strategy.data_parallel) return *strategy.data_parallel;
  DataParallel mode = DataParallel::kNone;
  if (!strategy.zero) return mode;
  for (const DataParallelTraits& row : kDataParallelModes) {
    // Odc is asked for by name.
    if (row.reduces && row.zero_stage() == *strategy.zero &&
        row.mode != DataParallel::kOdc) {
      mode = row.mode;
    }
  }
  return mode;
}

absl::StatusOr<int> ZeroStage(const RunConfig& config) {
  const std::optional<DataParallel>& kind = config.strategy.data_parallel;
  const std::optional<int>& zero = config.strategy.zero;
  if (!kind) return zero.value_or(0);
  const int stage = TraitsOf(*kind).zero_stage();
  if (zero.value_or(stage) != stage) {
    return BadValue(
        config.Field("strategy.zero"), absl::StrCat(*zero),
        absl::StrCat(stage, " with strategy.data_parallel ",
                     TraitsOf(*kind).name, ", or one of the two left out"));
  }
  return stage;
}

absl::StatusOr<TrainingSpec> PrepareTraining(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model) {
  const StrategyChoice& strategy = config.strategy;
  TrainingSpec training;
  training.tp = sizes.tp;
  training.cp = sizes.cp;
  training.sequence_parallel =
      strategy.sequence_parallel.value_or(sizes.tp > 1) && sizes.tp > 1;
  // The receivers' gathering is part of estimated pass times only.
  training.scatter_gather = strategy.scatter_gather.value_or(
      config.costs.analytic || config.costs.profile.has_value());
  training.ep = strategy.ep.value_or(1);
  training.dp = sizes.dp;
  PW_ASSIGN_OR_RETURN(training.zero, ZeroStage(config));
  training.microbatch_size = strategy.microbatch_size.value_or(1);
  training.slices = sizes.slices;
  training.recompute = strategy.recompute.value_or(training.recompute);
  if (!strategy.recompute_modules.empty()) {
    PW_ASSIGN_OR_RETURN(
        training.recompute_modules,
        BitsOf(config, "strategy.recompute_modules", strategy.recompute_modules,
               RecomputeModuleChoices()));
  }
  PW_RETURN_IF_ERROR(TakeRecomputeChunks(config, sizes.vpp, &training));
  PW_RETURN_IF_ERROR(TakeOffloadedTensors(config, &training));
  training.recompute_layers = strategy.recompute_layers.value_or(0);
  training.recompute_every = strategy.recompute_every.value_or(1);
  if (strategy.recompute_layers && strategy.recompute_every) {
    return BadValue(config.Field("strategy.recompute_every"),
                    absl::StrCat(*strategy.recompute_every),
                    "absent with strategy.recompute_layers");
  }
  training.plain_cross_entropy = strategy.plain_cross_entropy.value_or(false);
  training.keeps_gathered =
      KeepsGatheredOf(strategy, training.sequence_parallel);
  training.stage_buffers = StageBuffersOf(strategy, sizes.pp);
  training.stops_early = strategy.recompute_stops_early.value_or(false);
  training.whole_gradients =
      strategy.whole_gradients.value_or(training.whole_gradients);
  if (strategy.attention) {
    training.flash_attention = strategy.attention == Attention::kFlash;
  }
  training.fused_cross_entropy =
      strategy.fused_cross_entropy.value_or(training.fused_cross_entropy);
  training.fused_optimizer =
      strategy.fused_optimizer.value_or(training.fused_optimizer);
  training.precision = strategy.precision.value_or(training.precision);
  training.weight_bytes =
      strategy.parameter_bytes_per_parameter.value_or(training.weight_bytes);
  // PyTorch's own recipes cast weights for each pass.
  training.keeps_narrow_weights =
      strategy.framework != Framework::kTorchtitan &&
      strategy.framework != Framework::kDeepSpeed;
  training.narrow_weights = strategy.narrow_weights.value_or(false);
  if (training.narrow_weights &&
      !(training.keeps_narrow_weights && IsNarrow(training.precision))) {
    return BadValue(config.Field("strategy.narrow_weights"), "true",
                    "false unless strategy.precision has 8 or 4 bit and "
                    "strategy.framework is megatron or absent");
  }
  training.gradient_bytes =
      strategy.gradient_bytes_per_parameter.value_or(training.gradient_bytes);
  training.master_bytes =
      strategy.master_bytes_per_parameter.value_or(training.master_bytes);
  training.moment_bytes =
      strategy.moment_bytes_per_parameter.value_or(training.moment_bytes);
  training.optimizer = OptimizerRuleOf(strategy);
  training.vocabulary = strategy.vocabulary.value_or(training.vocabulary);
  training.prediction_table =
      strategy.framework.value_or(Framework::kMegatron) == Framework::kMegatron;
  PW_ASSIGN_OR_RETURN(training.execution, PrepareExecution(config));
  // There are no passes of another one.
  if (sizes.microbatches == 1) {
    training.execution.overlap_experts = false;
    training.execution.braided_tensor = false;
  }
  TakeShardedLayers(config, &training);
  if (strategy.sequence) training.sequence = *strategy.sequence;
  if (!model) return training;
  if (!strategy.sequence) training.sequence = model->sequence;
  PW_RETURN_IF_ERROR(
      Locate(config, CheckTraining(*model, training, sizes.vpp)));
  return training;
}

absl::StatusOr<StageLayout> PrepareLayout(const RunConfig& config,
                                          const RunSizes& sizes,
                                          const ModelSpec& model,
                                          const TrainingSpec& training,
                                          const std::vector<int>& rank_of_stage,
                                          const std::vector<double>& slowness) {
  PW_RETURN_IF_ERROR(CheckOneChoice(config));
  const StrategyChoice& strategy = config.strategy;
  const int64_t stages = int64_t{sizes.pp} * sizes.vpp;
  absl::StatusOr<StageLayout> layout;
  if (!strategy.layers.empty()) {
    if (static_cast<int64_t>(strategy.layers.size()) != stages) {
      return BadValue(config.Field("strategy.layers"),
                      absl::StrCat("a list of ", strategy.layers.size()),
                      absl::StrCat("one number a stage, pp * vpp = ", sizes.pp,
                                   " * ", sizes.vpp, " = ", stages));
    }
    layout = LayoutFromCounts(model, training, strategy.layers);
  } else if (strategy.layout) {
    layout = ParseLayout(model, training, *strategy.layout,
                         static_cast<int>(stages));
  } else if (strategy.split.value_or(LayerSplit::kEven) ==
             LayerSplit::kBalanced) {
    layout = Balanced(config, model, training, rank_of_stage, slowness);
  } else {
    layout = EvenLayout(model, training, sizes.pp, sizes.vpp);
  }
  PW_RETURN_IF_ERROR(Locate(config, layout.status()));
  return layout;
}

double PrepareHopBytes(const RunConfig& config,
                       const std::optional<PreparedModel>& model) {
  if (config.costs.hop_bytes) return *config.costs.hop_bytes;
  return model ? HopBytes(model->spec, model->training) : 0;
}

namespace {

// Sums of `weigh` over the parameters of each stage; without those that are
// frozen, or with them.
std::vector<double> ParametersOfStages(
    const PreparedModel& model, bool frozen_too,
    const std::function<double(const ModelOp&)>& weigh) {
  const double expert_share = model.training.expert_share();
  const std::set<int> has_table =
      RanksWithTable(model.layout, model.rank_of_stage);
  std::vector<double> parameters;
  for (size_t stage = 0; stage < model.layout.stages.size(); ++stage) {
    const bool has_embedding = has_table.contains(model.rank_of_stage[stage]);
    double sum = 0;
    for (const StageBlock& block : model.layout.stages[stage]) {
      // Frozen and trained layers may stand in one run of layers.
      const bool alike = model.spec.frozen_layers == 0;
      for (int64_t at = 0; at < (alike ? 1 : block.count); ++at) {
        const double times =
            (alike ? static_cast<double>(block.count) : 1) * block.part;
        for (const ModelOp& op :
             model.Ops(block.kind, block.first_layer + at)) {
          // On one rank a tied table has one gradient.
          if (op.is_frozen && !frozen_too) continue;
          if (op.is_tied && has_embedding) continue;
          sum += times * op.parameters * weigh(op) *
                 (op.is_expert ? expert_share : 1);
        }
      }
    }
    parameters.push_back(sum);
  }
  return parameters;
}

}  // namespace

std::vector<double> TrainedParameters(const PreparedModel& model) {
  return ParametersOfStages(model, false, [](const ModelOp&) { return 1.0; });
}

std::vector<double> StoredParameters(const PreparedModel& model) {
  return ParametersOfStages(model, true, [](const ModelOp&) { return 1.0; });
}

std::vector<double> GatheredWeights(const PreparedModel& model) {
  const TrainingSpec& training = model.training;
  return ParametersOfStages(model, true, [&](const ModelOp& op) {
    return IsNarrowWeight(training, op) ? GatheredWeightBytes(training)
                                        : training.weight_bytes;
  });
}

double TiedGradientBytes(const PreparedModel& model) {
  double parameters = 0;
  // The table of a stage with multi-token prediction has a copy on the first
  // one (Megatron-LM, megatron/core/distributed/finalize_model_grads.py).
  double predicted = 0;
  const auto& stages = model.layout.stages;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (const StageBlock& block : stages[stage]) {
      const bool is_copy =
          block.kind == BlockKind::kEmbedding && block.part == 1 && stage > 0;
      if (block.kind != BlockKind::kHead && !is_copy) continue;
      for (const ModelOp& op : model.Ops(block.kind, block.first_layer)) {
        if (op.is_frozen) continue;
        if (op.is_tied) parameters += block.part * op.parameters;
        if (op.kind == OpClass::kLookup) predicted = op.parameters;
      }
    }
  }
  return model.training.gradient_bytes * std::max(parameters, predicted);
}

std::vector<double> GradientBytes(const RunConfig& config,
                                  const RunSizes& sizes,
                                  const std::optional<PreparedModel>& model) {
  if (config.costs.gradient_bytes) {
    return std::vector<double>(int64_t{sizes.pp} * sizes.vpp,
                               *config.costs.gradient_bytes / sizes.vpp);
  }
  std::vector<double> bytes;
  if (!model) return bytes;
  for (const double parameters : TrainedParameters(*model)) {
    bytes.push_back(model->training.gradient_bytes * parameters);
  }
  return bytes;
}

double ParametersPerGradientByte(const TrainingSpec& training) {
  return training.weight_bytes / training.gradient_bytes;
}

}  // namespace pipewright
