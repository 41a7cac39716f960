// A run as torchtitan's configuration: a Python file with one function
// (b5bcd76c, torchtitan/config/configs.py and
// torchtitan/models/llama3/config_registry.py), or TOML (until 9810191bb).
#include <initializer_list>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/foreign/emission.h"
#include "sim/foreign/titan_models.h"
#include "sim/model/precision.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/torch_csv.h"

namespace pipewright {
namespace {

// A table of TOML, or a keyword argument of the configuration in Python.
// Numbers, texts and lists are written alike in both.
struct Section {
  const char* name;
  const char* type;  // class in Python; "": the section is for TOML alone
  std::vector<std::pair<std::string, std::string>> keys;

  void Add(const char* key, int64_t value) {
    keys.emplace_back(key, absl::StrCat(value));
  }
  void Add(const char* key, absl::string_view text) {
    keys.emplace_back(key, absl::StrCat("\"", text, "\""));
  }
};

std::string Quoted(const std::vector<std::string>& names) {
  return absl::StrCat("[\"", absl::StrJoin(names, "\", \""), "\"]");
}

class TitanWriter {
 public:
  TitanWriter(Emission* emission, bool toml)
      : emission_(*emission), toml_(toml) {}

  absl::Status Write() {
    const std::optional<TitanFlavor> flavor =
        FlavorOf(emission_.model, toml_ ? "toml" : "tokens");
    if (!flavor) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--emit torchtitan: no flavor of its models has the sizes of ",
          emission_.model.name,
          "; frameworks/torchtitan_flavors.csv has them"));
    }
    PW_RETURN_IF_ERROR(RefuseUnsayable("torchtitan", Refusals(*flavor)));
    emission_.HoldModel();
    emission_.Hold({"strategy.framework", "strategy.offload"});
    Training();
    Degrees();
    Stages();
    Recompute();
    Kernels();
    emission_.out.text =
        toml_ ? Toml(*flavor) : Python(*flavor, ModelArguments(*flavor));
    return absl::OkStatus();
  }

 private:
  const StrategyChoice& strategy() const { return emission_.strategy(); }
  bool shards() const {
    return DataParallelOf(strategy()) == DataParallel::kFsdp;
  }
  bool has_peers() const {
    return emission_.training.dp * emission_.training.cp > 1;
  }
  std::string Bool(bool on) const {
    return toml_ ? (on ? "true" : "false") : (on ? "True" : "False");
  }

  std::vector<Unsayable> Refusals(const TitanFlavor& flavor) const {
    const TrainingSpec& training = emission_.training;
    const Schedule& order = *emission_.run.schedule.lowered;
    const bool pipeline = *strategy().pp > 1;
    const bool alone = *strategy().pp * training.tp * training.cp == 1;
    const int own_etp = training.ep > 1 ? 1 : training.tp;
    return {
        {training.optimizer.kind != OptimizerKind::kAdam,
         "an optimizer other than Adam"},
        {has_peers() && !shards() &&
             !(toml_ && alone &&
               DataParallelOf(strategy()) == DataParallel::kDdp),
         "gradients that are not sharded with the weights (--data-parallel "
         "fsdp shards them)"},
        {training.recompute != Recompute::kNone &&
             training.recompute != Recompute::kFull &&
             training.recompute != Recompute::kOpSelective,
         "recomputation other than none, op-selective, full"},
        {training.recompute_layers > 0, "recomputation of some layers"},
        {training.recompute_every > 1 && !toml_,
         "recomputation of every Nth layer"},
        {strategy().offload.value_or(OffloadMode::kNone) != OffloadMode::kNone,
         "offloaded activations"},
        {!training.flash_attention, "attention that is not fused"},
        {training.fused_cross_entropy, "a fused cross-entropy"},
        {training.precision != Precision::kBf16 &&
             !(toml_ && (training.precision == Precision::kFp8Tensorwise ||
                         training.precision == Precision::kMxfp8)),
         toml_ ? "a precision other than bf16, fp8-tensorwise, mxfp8"
               : "a precision other than bf16"},
        {training.execution.launch == Launch::kGraphs && (toml_ || pipeline),
         "CUDA graphs with a pipeline, or in TOML"},
        {emission_.model.has_experts() && training.etp() != own_etp,
         "tensor parallelism of experts beside expert parallelism"},
        // torchtitan 238fa9953, torchtitan/models/*/__init__.py.
        {toml_ && pipeline &&
             (flavor.name == "qwen3" || flavor.name == "gpt_oss"),
         "a pipeline of this model in TOML"},
        {emission_.model.tied_embeddings && pipeline,
         "tied embeddings with a pipeline"},
        {emission_.model.mtp_layers > 0,
         "multi-token prediction (--set model.mtp_layers=0 leaves it out)"},
        {pipeline && emission_.csv.empty() && NeedsTorchCsv(emission_.run),
         "this schedule without a file of its order (--emit-schedule)"},
        {pipeline && !TorchHasPlacement(order.placement),
         "stages that go round the ranks neither in a loop nor in a V"},
    };
  }

  void Training() {
    const TrainingSpec& training = emission_.training;
    const int64_t size = training.microbatch_size;
    const int64_t microbatches = *strategy().microbatches;
    const bool pipeline = *strategy().pp > 1;
    if (toml_) {
      // Without a pipeline the local batch is that of one forward.
      training_.Add("local_batch_size", pipeline ? microbatches * size : size);
      training_.Add("global_batch_size", emission_.batch());
      training_.Add("seq_len", training.sequence);
      parallelism_.Add("pipeline_parallel_microbatch_size", size);
    } else {
      training_.Add("max_context_length", training.sequence);
      training_.Add("num_tokens_per_microbatch_per_dp_rank",
                    size * training.sequence);
      training_.Add("num_tokens_per_train_step",
                    emission_.batch() * training.sequence);
      if (pipeline) parallelism_.Add("num_pp_microbatches", microbatches);
    }
    emission_.Hold({"strategy.microbatches", "strategy.microbatch_size",
                    "strategy.sequence"});
  }

  void Degrees() {
    const TrainingSpec& training = emission_.training;
    // Shards within replicas (HSDP), or over all.
    const int64_t shard =
        shards() ? strategy().shard_group.value_or(training.dp) : 1;
    parallelism_.Add("data_parallel_replicate_degree", training.dp / shard);
    parallelism_.Add("data_parallel_shard_degree", shard);
    parallelism_.Add("tensor_parallel_degree", training.tp);
    parallelism_.Add("context_parallel_degree", training.cp);
    parallelism_.Add("pipeline_parallel_degree", *strategy().pp);
    emission_.Hold({"strategy.tp", "strategy.cp", "strategy.pp", "strategy.dp",
                    "strategy.data_parallel", "strategy.shard_group"});
    if (emission_.model.has_experts()) {
      parallelism_.Add("expert_parallel_degree", training.ep);
      emission_.Hold({"strategy.ep", "strategy.etp"});
    }
    if (training.tp > 1 && !toml_) {
      parallelism_.keys.emplace_back("enable_sequence_parallel",
                                     Bool(training.sequence_parallel));
    }
    if (!toml_ || training.sequence_parallel || training.tp == 1) {
      emission_.Hold({"strategy.sequence_parallel"});
    }
    if (!shards() || !has_peers()) return;
    const bool again = strategy().reshard_after_forward.value_or(true);
    parallelism_.Add("fsdp_reshard_after_forward", again ? "always" : "never");
    emission_.Hold({"strategy.reshard_after_forward", "strategy.shard_blocks"});
  }

  void Stages() {
    emission_.Hold({"schedule.name", "schedule.params", "strategy.layers",
                    "strategy.layout", "strategy.split", "strategy.vpp"});
    if (*strategy().pp == 1) return;
    const Schedule& order = *emission_.run.schedule.lowered;
    const std::string& own = FindSchedule(order.name)->info->torch_name;
    // Beside a file the name says how many stages a rank has, and in which
    // turn.
    parallelism_.Add("pipeline_parallel_schedule",
                     emission_.csv.empty()        ? own
                     : order.placement.vpp() == 1 ? "1F1B"
                     : order.placement.shape() == Placement::Shape::kV
                         ? "ZBVZeroBubble"
                         : "PipelineScheduleMulti");
    if (!emission_.csv.empty()) {
      parallelism_.Add("pipeline_parallel_schedule_csv", emission_.csv);
      emission_.Hold({"schedule.file"});
    }
    parallelism_.keys.emplace_back("module_fqns_per_model_part", Parts());
  }

  // Names of the modules of each stage.
  std::string Parts() const {
    const StageLayout& layout = emission_.run.prepared_model->layout;
    const std::string indent(toml_ ? 0 : 12, ' ');
    std::string text = "[\n";
    int64_t layer = 0;
    for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
      std::vector<std::string> modules;
      if (stage == 0) modules.emplace_back("tok_embeddings");
      const int64_t count = layout.LayersOf(static_cast<int>(stage));
      for (int64_t each = 0; each < count; ++each) {
        modules.push_back(absl::StrCat("layers.", layer++));
      }
      if (stage + 1 == layout.stages.size()) {
        modules.insert(modules.end(), {"norm", toml_ ? "output" : "lm_head"});
      }
      absl::StrAppend(&text, indent, toml_ ? "  " : "    ", Quoted(modules),
                      ",\n");
    }
    return absl::StrCat(text, indent, "]");
  }

  void Recompute() {
    using Kind = pipewright::Recompute;
    const Kind kind = emission_.training.recompute;
    const int every = emission_.training.recompute_every;
    emission_.Hold({"strategy.recompute", "strategy.recompute_every"});
    checkpoint_class_ = kind == Kind::kNone   ? "None"
                        : kind == Kind::kFull ? "FullAC.Config()"
                                              : "SelectiveAC.Config()";
    checkpoint_.Add("mode", kind == Kind::kNone                 ? "none"
                            : kind == Kind::kFull && every == 1 ? "full"
                                                                : "selective");
    if (kind == Kind::kOpSelective) {
      checkpoint_.Add("selective_ac_option", "op");
    } else if (every > 1) {
      checkpoint_.Add("selective_ac_option", absl::StrCat(every));
    }
  }

  void Kernels() {
    emission_.Hold({"strategy.attention", "strategy.precision",
                    "strategy.fused_cross_entropy"});
    const RunConfig& config = emission_.config;
    if (config.costs.analytic_kernels == FrameworkKernels::kCompiled) {
      compile_.keys.emplace_back("enable", Bool(true));
      compile_.keys.emplace_back("components", Quoted({"model"}));
    }
    emission_.Hold({"costs.analytic.kernels"});
    if (!toml_) {
      const bool graphs =
          emission_.training.execution.launch == Launch::kGraphs;
      training_.keys.emplace_back("disable_cuda_graphs", Bool(!graphs));
      if (config.strategy.launch != Launch::kCompiled) {
        emission_.Hold({"strategy.launch"});
      }
    } else if (config.strategy.fused_optimizer) {
      optimizer_.Add("implementation",
                     *config.strategy.fused_optimizer ? "fused" : "foreach");
      emission_.Hold({"strategy.fused_optimizer"});
    }
  }

  std::string Toml(const TitanFlavor& flavor) const {
    Section model = {"model", ""};
    model.Add("name", flavor.name);
    model.Add("flavor", flavor.flavor);
    if (emission_.training.precision != Precision::kBf16) {
      model.keys.emplace_back(
          "converters",
          Quoted({emission_.training.precision == Precision::kMxfp8
                      ? "quantize.linear.mx"
                      : "quantize.linear.float8"}));
    }
    std::string text = absl::StrCat(
        "# Configuration for torchtitan until 9810191bb (2026-02-23), which "
        "reads TOML.\n",
        emission_.Comments());
    for (const Section* section : std::initializer_list<const Section*>{
             &model, &training_, &optimizer_, &parallelism_, &checkpoint_,
             &compile_}) {
      if (section->keys.empty()) continue;
      absl::StrAppend(&text, "\n[", section->name, "]\n");
      for (const auto& [key, value] : section->keys) {
        absl::StrAppend(&text, key, " = ", value, "\n");
      }
    }
    return text;
  }

  // Those of model_registry behind the flavor.
  std::string ModelArguments(const TitanFlavor& flavor) {
    std::string text =
        absl::StrCat("\"", flavor.flavor, "\", attn_backend=\"flex\"");
    if (emission_.model.has_experts()) {
      const bool once =
          emission_.training.ep > 1 &&
          emission_.training.execution.dispatch == ExpertDispatch::kOnce;
      absl::StrAppend(&text, ", moe_comm_backend=\"",
                      once ? "deepep" : "standard", "\"");
      emission_.Hold({"strategy.dispatch"});
    }
    return text;
  }

  std::string Python(const TitanFlavor& flavor,
                     const std::string& arguments) const {
    std::string text = absl::StrCat(
        "# Configuration for torchtitan (b5bcd76c). In a module on Python's "
        "path:\n#   MODULE=the.module CONFIG=job ./run_train.sh\n",
        emission_.Comments(),
        "from torchtitan.components.data import "
        "ConcatThenSplitPackingConfig, GrainDataLoader\n"
        "from torchtitan.components.loss import CrossEntropyLoss\n"
        "from torchtitan.components.optimizer import default_adamw\n"
        "from torchtitan.config import CompileConfig, ParallelismConfig, "
        "TrainingConfig\n"
        "from torchtitan.distributed.activation_checkpoint import FullAC, "
        "SelectiveAC\n"
        "from torchtitan.hf_datasets.text_datasets import DATASETS\n"
        "from torchtitan.models.common.config_utils import "
        "decoder_vocab_size\n"
        "from torchtitan.models.",
        flavor.name,
        " import model_registry\n"
        "from torchtitan.trainer import Trainer\n\n\n"
        "def job() -> Trainer.Config:\n"
        "    spec = model_registry(",
        arguments,
        ")\n"
        "    return Trainer.Config(\n"
        "        model_spec=spec,\n"
        "        loss=CrossEntropyLoss.Config(\n"
        "            global_vocab_size=decoder_vocab_size(spec),\n"
        "        ),\n"
        "        optimizer=default_adamw(),\n"
        "        dataloader=GrainDataLoader.Config(\n"
        "            dataset=ConcatThenSplitPackingConfig("
        "dataset=DATASETS[\"c4\"]),\n"
        "        ),\n");
    for (const Section* section : {&training_, &parallelism_, &compile_}) {
      if (section->keys.empty()) continue;
      absl::StrAppend(&text, "        ", section->name, "=", section->type,
                      "(\n");
      for (const auto& [key, value] : section->keys) {
        absl::StrAppend(&text, "            ", key, "=", value, ",\n");
      }
      absl::StrAppend(&text, "        ),\n");
    }
    return absl::StrCat(text,
                        "        activation_checkpoint=", checkpoint_class_,
                        ",\n    )\n");
  }

  Emission& emission_;
  bool toml_;
  Section training_ = {"training", "TrainingConfig"};
  Section parallelism_ = {"parallelism", "ParallelismConfig"};
  Section compile_ = {"compile", "CompileConfig"};
  Section optimizer_ = {"optimizer", ""};
  Section checkpoint_ = {"activation_checkpoint", ""};
  std::string checkpoint_class_;
};

}  // namespace

bool NeedsTorchCsv(const PreparedRun& run) {
  const absl::StatusOr<ScheduleMatch> match =
      FindSchedule(run.schedule.lowered->name);
  if (!match.ok() || match->info->torch_name.empty()) return true;
  // PyTorch's 1F1B needs a microbatch for each stage.
  return run.config.schedule.params != match->info->torch_params ||
         (match->info->torch_name == "1F1B" &&
          *run.config.strategy.microbatches < *run.config.strategy.pp);
}

absl::Status EmitTitan(Emission* emission, ForeignForm form) {
  return TitanWriter(emission, form == ForeignForm::kTorchtitanToml).Write();
}

}  // namespace pipewright
