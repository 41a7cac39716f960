#include "sim/config/framework.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/config/run_config_fields.h"

namespace pipewright {
namespace {

// What the allocator of PyTorch holds beyond its peak, as a part of it: median
// of ten runs that print both (MooreThreads/SimuMax 4dcaae513ba7, 2.8 to 9.3 %).
constexpr double kFragmentation = 0.058;

class Defaults {
 public:
  explicit Defaults(RunConfig* config) : config_(*config) {}

  template <class Value, class Default>
  void Set(const char* field, std::optional<Value>& value, Default given,
           const std::string& text) {
    if (value) return;
    value = given;
    set_.push_back(absl::StrCat(field, " ", text));
  }
  template <class Value>
  void Number(const char* field, std::optional<Value>& value, double given) {
    Set(field, value, static_cast<Value>(given), absl::StrCat(given));
  }
  void Switch(const char* field, std::optional<bool>& value, bool given) {
    Set(field, value, given, given ? "true" : "false");
  }

  // megatron/training/arguments.py and core/distributed, release 0.14: bf16
  // gradients are accumulated and reduced in fp32, the optimizer is sharded.
  void Megatron() {
    StrategyChoice& strategy = config_.strategy;
    if (!strategy.zero) {
      Set("strategy.data_parallel", strategy.data_parallel,
          DataParallel::kZero1, "zero1");
    }
    Types(2, 4, 4, 8);
    Switch("strategy.fused_cross_entropy", strategy.fused_cross_entropy, true);
    Batched();
    Memory();
  }

  // torchtitan/parallelisms/parallelize_llama.py and train_configs, December
  // 2024: FSDP2 over all replicas, weights gathered in bf16 and kept between
  // the passes of a pipeline, whose gradients are reduced with the last
  // microbatch (torch/distributed/pipelining/stage.py); all states in fp32.
  void Torchtitan() {
    StrategyChoice& strategy = config_.strategy;
    const bool pipeline = strategy.pp.value_or(1) > 1;
    const bool shards = strategy.dp.value_or(1) > 1;
    if (shards && !strategy.zero) {
      Set("strategy.data_parallel", strategy.data_parallel,
          DataParallel::kFsdp, "fsdp");
    }
    if (shards && strategy.data_parallel == DataParallel::kFsdp) {
      Set("strategy.shard_blocks", strategy.shard_blocks, ShardBlocks::kLayer,
          "layer");
      Set("strategy.gather_type", strategy.gather_type, GatherType::kBf16,
          "bf16");
      if (pipeline) {
        Switch("strategy.reshard_after_forward",
               strategy.reshard_after_forward, false);
        Switch("strategy.whole_gradients", strategy.whole_gradients, true);
      }
    }
    Types(4, 4, 0, 8);
    Switch("strategy.fused_cross_entropy", strategy.fused_cross_entropy, false);
    if (strategy.tp.value_or(1) > 1 && config_.costs.analytic) {
      Set("strategy.tp_overlap", strategy.tensor_overlap, TensorOverlap::kNone,
          "none");
    }
    Batched();
    Memory();
  }

  // deepspeed/runtime/pipe/engine.py and bf16_optimizer.py: stage 1 alone goes
  // with a pipeline; gradients in fp32.
  void DeepSpeed() {
    StrategyChoice& strategy = config_.strategy;
    if (!strategy.zero) {
      Set("strategy.data_parallel", strategy.data_parallel,
          DataParallel::kZero1, "zero1");
    }
    Types(2, 4, 4, 8);
    Switch("strategy.fused_cross_entropy", strategy.fused_cross_entropy, false);
    Switch("strategy.overlap_gradients", strategy.overlap_gradients, false);
    Memory();
  }

  std::string Note(const char* framework) const {
    return absl::StrCat("strategy.framework ", framework, " sets ",
                        absl::StrJoin(set_, ", "));
  }
  bool any() const { return !set_.empty(); }

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

  // The plain schedules of Megatron-LM and of PyTorch post the transfers of a
  // forward and a backward together; the interleaved ones overlap them.
  void Batched() {
    StrategyChoice& strategy = config_.strategy;
    if (config_.schedule.name == "1f1b" && strategy.pp.value_or(1) > 1) {
      Set("strategy.waiting", strategy.waiting, WaitRule::kBatched, "batched");
    }
  }

  void Memory() {
    Number("strategy.fragmentation", config_.strategy.fragmentation,
           kFragmentation);
  }

  RunConfig& config_;
  std::vector<std::string> set_;
};

}  // namespace

RunConfig WithFramework(RunConfig config) {
  if (!config.strategy.framework) return config;
  Defaults defaults(&config);
  switch (*config.strategy.framework) {
    case Framework::kMegatron:
      defaults.Megatron();
      break;
    case Framework::kTorchtitan:
      defaults.Torchtitan();
      break;
    case Framework::kDeepSpeed:
      defaults.DeepSpeed();
      break;
  }
  if (defaults.any()) {
    config.notes.push_back(defaults.Note(
        ChoiceName(FrameworkChoices(), *config.strategy.framework)));
  }
  return config;
}

}  // namespace pipewright
