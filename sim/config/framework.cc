#include "sim/config/framework.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/config/config_fields.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

// What the allocator of PyTorch holds beyond its peak, as a part of it: median
// of ten runs that print both (MooreThreads/SimuMax 4dcaae513ba7, 2.8 to 9.3
// %): others' logs of runs. [paper]
constexpr double kFragmentation = 0.058;

class Defaults {
 public:
  Defaults(const RunSizes& sizes, const FrameworkFacts& facts,
           RunConfig* config)
      : sizes_(sizes), facts_(facts), config_(*config) {}

  template <class Value, class Default>
  void Set(const char* field, std::optional<Value>& value, Default given,
           const std::string& text) {
    if (value) return;
    value = given;
    set_.emplace_back(field, text);
  }
  template <class Value>
  void Number(const char* field, std::optional<Value>& value, double given) {
    Set(field, value, static_cast<Value>(given), absl::StrCat(given));
  }
  void Switch(const char* field, std::optional<bool>& value, bool given) {
    Set(field, value, given, given ? "true" : "false");
  }

  // NVIDIA/Megatron-LM, megatron/training/arguments.py: what no flag asks for.
  // bf16 gradients are summed and reduced in fp32 unless --grad-reduce-in-bf16;
  // --use-distributed-optimizer, --overlap-grad-reduce, --sequence-parallel and
  // --cross-entropy-loss-fusion are off. With experts and tensor parallelism
  // megatron/core/transformer/moe/moe_layer.py does not run without
  // --sequence-parallel.
  void Megatron() {
    StrategyChoice& strategy = config_.strategy;
    if (!strategy.zero && facts_.trains && facts_.flushes) {
      Set("strategy.data_parallel", strategy.data_parallel, DataParallel::kDdp,
          "ddp");
    }
    Switch("strategy.overlap_gradients", strategy.overlap_gradients, false);
    if (sizes_.tp > 1) {
      Switch("strategy.sequence_parallel", strategy.sequence_parallel,
             SequenceParallelOf(strategy, sizes_.tp, facts_.has_experts));
    }
    Types(2, 4, 4, 8);
    Switch("strategy.fused_cross_entropy", strategy.fused_cross_entropy, false);
    Batched();
    Memory();
  }

  // pytorch/torchtitan 004b3148a92b: torchtitan/config_manager.py (parameters
  // in bfloat16, reductions in float32, training.compile off) and
  // torchtitan/parallelisms/parallelize_llama.py (fully_shard of each layer
  // over dp and cp together, dp_shard_cp; no reshard after forward under a
  // pipeline; loss and sequence in parallel).
  // Under a pipeline gradients are reduced with the last microbatch alone
  // (pytorch/pytorch, torch/distributed/pipelining/stage.py,
  // set_requires_gradient_sync) and until then kept whole in the type of the
  // reduction (torch/distributed/fsdp,
  // FSDPParam.to_accumulated_grad_if_needed). torch.utils.checkpoint stops
  // early unless told otherwise. In a context of several devices PyTorch
  // gathers them and balances the load
  // (torch/distributed/tensor/experimental/_attention.py,
  // _ContextParallelOptions). What is gathered for a product is kept for its
  // gradient (torch/distributed/tensor/parallel/style.py, ColwiseParallel).
  void Torchtitan() {
    StrategyChoice& strategy = config_.strategy;
    const bool pipeline = sizes_.pp > 1;
    const bool shards = sizes_.holders() > 1 && ShardsStep();
    if (shards && !strategy.zero) {
      const bool takes =
          TakesSharding(OptimizerRuleOf(config_.strategy), DataParallel::kFsdp);
      Set("strategy.data_parallel", strategy.data_parallel,
          takes ? DataParallel::kFsdp : DataParallel::kZero1,
          takes ? "fsdp" : "zero1");
    }
    const bool fsdp = shards && DataParallelOf(strategy) == DataParallel::kFsdp;
    if (fsdp && ShardsLayers()) {
      Set("strategy.shard_blocks", strategy.shard_blocks, ShardBlocks::kLayer,
          "layer");
    }
    // These are of layers alone.
    if (fsdp && strategy.shard_blocks == ShardBlocks::kLayer) {
      Set("strategy.gather_type", strategy.gather_type, GatherType::kBf16,
          "bf16");
      if (config_.costs.analytic) {
        Switch("strategy.shard_copies", strategy.shard_copies, true);
      }
      if (pipeline) {
        Switch("strategy.reshard_after_forward", strategy.reshard_after_forward,
               false);
        if (!strategy.shard_group) {
          Switch("strategy.whole_gradients", strategy.whole_gradients, true);
        }
      }
    }
    Types(4, 4, 0, 8);
    const bool sequence_parallel =
        SequenceParallelOf(strategy, sizes_.tp, facts_.has_experts);
    if (KeepsGatheredOf(strategy, sequence_parallel)) {
      Switch("strategy.keep_gathered", strategy.keep_gathered, true);
    }
    if (pipeline) {
      Set("strategy.stage_buffers", strategy.stage_buffers,
          StageBuffersOf(strategy, sizes_.pp), "received");
    }
    Switch("strategy.fused_cross_entropy", strategy.fused_cross_entropy, false);
    Switch("strategy.plain_cross_entropy", strategy.plain_cross_entropy, true);
    Switch("strategy.recompute_stops_early", strategy.recompute_stops_early,
           true);
    if (config_.costs.analytic) {
      Set("costs.analytic.kernels", config_.costs.analytic_kernels,
          FrameworkKernels::kEager, "eager");
      if (sizes_.cp > 1) {
        Set("strategy.context", strategy.context,
            ContextOf(strategy, sizes_.cp), "torch-gather");
      }
    }
    Batched();
    Stepped();
    Memory();
  }

  // microsoft/DeepSpeed, deepspeed/runtime/bf16_optimizer.py (fp32 weights and
  // moments; fp32 gradients without ZeRO, else of the type of the model)
  // and deepspeed/runtime/pipe/engine.py (gradients are reduced behind the last
  // pass; stages 2 and 3 do not go with a pipeline). The model is PyTorch's,
  // but for its checkpointing, which runs a whole layer again.
  void DeepSpeed() {
    StrategyChoice& strategy = config_.strategy;
    if (!strategy.zero && ShardsStep()) {
      Set("strategy.data_parallel", strategy.data_parallel,
          DataParallel::kZero1, "zero1");
    }
    const bool shards = TraitsOf(DataParallelOf(strategy)).shards_step;
    Types(2, shards ? 2 : 4, 4, 8);
    Switch("strategy.fused_cross_entropy", strategy.fused_cross_entropy, false);
    Switch("strategy.plain_cross_entropy", strategy.plain_cross_entropy, true);
    Switch("strategy.overlap_gradients", strategy.overlap_gradients, false);
    Memory();
  }

  std::string Note(const char* framework, const char* source) const {
    std::vector<std::string> all;
    for (const auto& [field, text] : set_) {
      all.push_back(absl::StrCat(field, " ", text));
    }
    return absl::StrCat("strategy.framework ", framework, " sets ",
                        absl::StrJoin(all, ", "), " (", source, ")");
  }
  bool any() const { return !set_.empty(); }
  std::vector<std::string> Fields() const {
    std::vector<std::string> fields;
    for (const auto& [field, text] : set_) fields.push_back(field);
    return fields;
  }

 private:
  // Bytes of a weight, gradient, master weight, both moments.
  void Types(int weight, int gradient, double master, double moments) {
    StrategyChoice& strategy = config_.strategy;
    Number("strategy.parameter_bytes_per_parameter",
           strategy.parameter_bytes_per_parameter, weight);
    Number("strategy.gradient_bytes_per_parameter",
           strategy.gradient_bytes_per_parameter, gradient);
    Number("strategy.master_bytes_per_parameter",
           strategy.master_bytes_per_parameter, master);
    Number("strategy.moment_bytes_per_parameter",
           strategy.moment_bytes_per_parameter, moments);
  }

  // Ours, whichever name of it was given.
  std::string ScheduleName() const {
    const absl::StatusOr<ScheduleMatch> match =
        FindSchedule(config_.schedule.name.value_or(""));
    return match.ok() ? match->info->name : "";
  }

  bool Offloads() const {
    const std::optional<OffloadMode>& given = config_.strategy.offload;
    return given ? *given != OffloadMode::kNone : facts_.offloads;
  }
  // May the optimizer be sharded?
  bool ShardsStep() const {
    return facts_.trains && facts_.flushes && facts_.directions == 1 &&
           TakesSharding(OptimizerRuleOf(config_.strategy),
                         DataParallel::kZero1);
  }
  // Layer by layer?
  bool ShardsLayers() const {
    const StrategyChoice& strategy = config_.strategy;
    return facts_.by_layer && !Offloads() &&
           strategy.optimizer_placement.value_or(OptimizerPlacement::kGpu) ==
               OptimizerPlacement::kGpu &&
           strategy.optimizer != OptimizerMode::kPostValidated;
  }

  // The plain schedules of Megatron-LM and of PyTorch post the transfers of a
  // forward and a backward together; the interleaved ones overlap them. A pure
  // delay holds no rank, and copies to the host would wait for it.
  void Batched() {
    StrategyChoice& strategy = config_.strategy;
    if (ScheduleName() == "1f1b" && sizes_.pp > 1 &&
        NamesSystem(config_.system) && !Offloads()) {
      Set("strategy.waiting", strategy.waiting, WaitRule::kBatched, "batched");
    }
  }

  // PyTorch's schedules of several stages a rank, PipelineScheduleMulti
  // (pytorch/pytorch 1fd7abc2f521, torch/distributed/pipelining/schedules.py),
  // exchange at the end of each time step. Those of later versions post sends
  // and receives on their own (00722e648b74, _PipelineScheduleRuntime). A
  // post-validated step has no place in them.
  void Stepped() {
    StrategyChoice& strategy = config_.strategy;
    constexpr absl::string_view kMulti[] = {"interleaved-1f1b",
                                            "interleaved-zb", "looped-bfs"};
    if (ScheduleName() == "interleaved-1f1b" && sizes_.pp > 1 &&
        config_.schedule.params.try_emplace("rule", "torch").second) {
      set_.emplace_back("schedule.params.rule", "torch");
    }
    if (absl::c_linear_search(kMulti, ScheduleName()) && sizes_.pp > 1 &&
        NamesSystem(config_.system) && !Offloads() &&
        strategy.optimizer != OptimizerMode::kPostValidated) {
      Set("strategy.waiting", strategy.waiting, WaitRule::kStepped, "stepped");
    }
  }

  void Memory() {
    Number("strategy.fragmentation", config_.strategy.fragmentation,
           kFragmentation);
  }

  const RunSizes& sizes_;
  const FrameworkFacts& facts_;
  RunConfig& config_;
  std::vector<std::pair<std::string, std::string>> set_;
};

}  // namespace

bool SequenceParallelOf(const StrategyChoice& strategy, int tp,
                        bool has_experts) {
  const bool off = strategy.framework == Framework::kMegatron && !has_experts;
  return tp > 1 && strategy.sequence_parallel.value_or(!off);
}

bool KeepsGatheredOf(const StrategyChoice& strategy, bool sequence_parallel) {
  return strategy.keep_gathered.value_or(
      sequence_parallel && strategy.framework == Framework::kTorchtitan);
}

// torchtitan/trainer.py: step(return_outputs=False).
StageBuffers StageBuffersOf(const StrategyChoice& strategy, int pp) {
  if (pp == 1) return StageBuffers::kNone;
  return strategy.stage_buffers.value_or(
      strategy.framework == Framework::kTorchtitan ? StageBuffers::kReceived
                                                   : StageBuffers::kNone);
}

ContextExchange ContextOf(const StrategyChoice& strategy, int cp) {
  return strategy.context.value_or(cp > 1 && strategy.framework ==
                                                 Framework::kTorchtitan
                                       ? ContextExchange::kTorchGather
                                       : ContextExchange::kRing);
}

int ExpertTensorOf(const StrategyChoice& strategy, int ep) {
  const bool apart = strategy.framework == Framework::kTorchtitan && ep > 1;
  return strategy.etp.value_or(apart ? 1 : 0);
}

absl::Status CheckFramework(const RunConfig& config, const RunSizes& sizes) {
  const StrategyChoice& strategy = config.strategy;
  if (!strategy.data_parallel && !strategy.zero) return absl::OkStatus();
  // deepspeed/runtime/pipe/engine.py.
  if (strategy.framework == Framework::kDeepSpeed && sizes.pp > 1 &&
      TraitsOf(DataParallelOf(strategy)).shards_gradients) {
    const char* const path =
        strategy.zero ? "strategy.zero" : "strategy.data_parallel";
    return BadValue(config.Field(path),
                    strategy.zero ? absl::StrCat(*strategy.zero)
                                  : ChoiceName(DataParallelChoices(),
                                               *strategy.data_parallel),
                    "ZeRO 0 or 1: DeepSpeed's pipeline takes no other");
  }
  return absl::OkStatus();
}

RunConfig WithFramework(RunConfig config, const RunSizes& sizes,
                        const FrameworkFacts& facts) {
  if (!config.strategy.framework) return config;
  const std::string name =
      ChoiceName(FrameworkChoices(), *config.strategy.framework);
  Defaults defaults(sizes, facts, &config);
  const char* source = "";
  switch (*config.strategy.framework) {
    case Framework::kMegatron:
      source = "NVIDIA/Megatron-LM, megatron/training/arguments.py";
      defaults.Megatron();
      break;
    case Framework::kTorchtitan:
      source =
          "pytorch/torchtitan, config_manager.py and parallelize_llama.py; "
          "pytorch/pytorch, pipelining/stage.py and fsdp";
      defaults.Torchtitan();
      break;
    case Framework::kDeepSpeed:
      source =
          "microsoft/DeepSpeed, runtime/bf16_optimizer.py and "
          "runtime/pipe/engine.py";
      defaults.DeepSpeed();
      break;
  }
  if (defaults.any()) {
    config.notes.push_back(defaults.Note(name.c_str(), source));
    const std::vector<std::string> fields = defaults.Fields();
    config.defaulted.insert(config.defaulted.end(), fields.begin(),
                            fields.end());
    // So that a refusal does not name a field that nobody gave.
    for (const std::string& field : fields) {
      config.origins[field] = {
          .flag = absl::StrCat("default of strategy.framework ", name)};
    }
  }
  return config;
}

bool FrameworkIsOfFile(const RunConfig& config) {
  const auto origin = config.origins.find("strategy.framework");
  return config.strategy.framework && origin != config.origins.end() &&
         !origin->second.flag.empty() &&
         !absl::StartsWith(origin->second.flag, "--");
}

}  // namespace pipewright
