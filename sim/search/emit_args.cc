// A run as arguments of Megatron-LM or torchtitan.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/status.h"
#include "sim/model/precision.h"
#include "sim/schedule/registry.h"
#include "sim/search/foreign_args.h"
#include "sim/search/foreign_table.h"
#include "sim/search/plan_layouts.h"

namespace pipewright {
namespace {

// Fields with the texts that ToString and --set have for them.
std::vector<std::pair<std::string, std::string>> FieldsOf(
    const RunConfig& config) {
  const std::vector<std::string> given = GivenPaths(config);
  const std::set<std::string> paths(given.begin(), given.end());
  std::vector<std::pair<std::string, std::string>> fields;
  for (const absl::string_view line :
       absl::StrSplit(ToString(config), '\n', absl::SkipEmpty())) {
    const size_t split = line.find(": ");
    if (split == absl::string_view::npos) continue;
    const std::string path(line.substr(0, split));
    if (paths.count(path) == 0) continue;
    std::string value(line.substr(split + 2));
    if (path == "costs.analytic") {
      if (config.costs.analytic_device) continue;
      fields.emplace_back("costs.analytic.device", "auto");
      continue;
    }
    fields.emplace_back(path, std::move(value));
  }
  return fields;
}

// Comment lines for the fields that no argument holds.
std::string CommentsOf(const RunConfig& config,
                       const std::set<std::string>& held) {
  std::string out;
  for (const auto& [path, value] : FieldsOf(config)) {
    if (held.count(path) == 0) {
      absl::StrAppend(&out, kCommentMark, path, "=", value, "\n");
    }
  }
  return out;
}

struct Emitter {
  // As given; run.config has the defaults of strategy.framework, too.
  const RunConfig& config;
  const PreparedRun& run;
  const ModelSpec& model;
  const TrainingSpec& training;
  std::string csv;
  std::set<std::string> held;
  EmittedArgs out;

  int devices() const {
    const StrategyChoice& strategy = run.config.strategy;
    return *strategy.pp * *strategy.dp * *strategy.tp * *strategy.cp;
  }
  int64_t batch() const {
    return int64_t{*run.config.strategy.microbatches} *
           training.microbatch_size * training.dp;
  }
  void Hold(const char* path) { held.insert(path); }

  void Megatron();
  void Torchtitan();
  std::vector<std::string> ModelFlags() const;
  std::vector<std::string> Layout();
  std::vector<std::string> Memory();
};

std::vector<std::string> Emitter::ModelFlags() const {
  std::vector<std::string> flags;
  const auto add = [&](const std::string& flag) {
    flags.push_back(absl::StrCat("--", flag));
  };
  for (const ForeignModelRow& row : ForeignModelRows()) {
    if (model.*row.member > 0)
      add(absl::StrCat(row.flag, " ", model.*row.member));
  }
  if (model.kv_heads != model.heads) add("group-query-attention");
  add(absl::StrCat("seq-length ", training.sequence));
  add(absl::StrCat("max-position-embeddings ", training.sequence));
  add(model.layer_norm ? "normalization LayerNorm" : "normalization RMSNorm");
  if (model.gated) add("swiglu");
  if (!model.tied_embeddings) add("untie-embeddings-and-output-weights");
  if (!model.bias) add("disable-bias-linear");
  if (model.qkv_bias) add("add-qkv-bias");
  if (model.qk_norm) add("qk-layernorm");
  return flags;
}

// Chunks and layers. Megatron reads counts as a string, so a list of them
// stands in a comment too.
std::vector<std::string> Emitter::Layout() {
  std::vector<std::string> flags;
  const StrategyChoice& strategy = run.config.strategy;
  const std::string& name = run.schedule.lowered->name;
  if (!config.strategy.layers.empty()) {
    flags.push_back(absl::StrCat(
        "--pipeline-model-parallel-layout '",
        MegatronLayout(config.strategy.layers, model.mtp_layers), "'"));
  } else if (config.strategy.layout) {
    flags.push_back(absl::StrCat("--pipeline-model-parallel-layout '",
                                 *config.strategy.layout, "'"));
    Hold("strategy.layout");
  } else if (*strategy.vpp > 1) {
    flags.push_back(
        absl::StrCat("--num-virtual-stages-per-pipeline-rank ", *strategy.vpp));
  }
  Hold("strategy.vpp");
  if (name == "1f1b" || name == "interleaved-1f1b") {
    Hold("schedule.name");
  } else {
    out.notes.push_back(absl::StrCat(
        "Megatron-LM has 1F1B and interleaved 1F1B alone: its run will not "
        "follow ",
        name));
  }
  return flags;
}

std::vector<std::string> Emitter::Memory() {
  std::vector<std::string> flags;
  switch (training.recompute) {
    case Recompute::kNone:
      break;
    case Recompute::kSelective:
      flags.push_back("--recompute-granularity selective");
      break;
    case Recompute::kNormActivation:
      flags.push_back(
          "--recompute-granularity selective --recompute-modules layernorm");
      out.notes.push_back(
          "Megatron-LM recomputes norms and, of experts, activation functions: "
          "less than norm-activation does in dense layers");
      break;
    case Recompute::kOpSelective:
      out.notes.push_back(
          "Megatron-LM has no recomputation by operations (op-selective)");
      break;
    case Recompute::kFull:
      if (training.recompute_layers > 0) {
        flags.push_back(
            absl::StrCat("--recompute-granularity full --recompute-method "
                         "block --recompute-num-layers ",
                         training.recompute_layers));
        Hold("strategy.recompute_layers");
        break;
      }
      flags.push_back(
          "--recompute-granularity full --recompute-method uniform "
          "--recompute-num-layers 1");
      break;
  }
  Hold("strategy.recompute");
  if (training.dp * training.cp == 1) return flags;
  const StrategyChoice& strategy = run.config.strategy;
  const bool given = strategy.data_parallel || strategy.zero;
  const DataParallel sharding =
      given ? DataParallelOf(strategy) : DataParallel::kDdp;
  if (given && sharding != DataParallel::kNone) Hold("strategy.data_parallel");
  if (sharding == DataParallel::kZero1) {
    flags.push_back("--use-distributed-optimizer");
  } else if (sharding == DataParallel::kZero2 ||
             sharding == DataParallel::kFsdp) {
    flags.push_back(
        absl::StrCat("--use-distributed-optimizer --use-megatron-fsdp "
                     "--data-parallel-sharding-strategy ",
                     sharding == DataParallel::kZero2 ? "optim_grads"
                                                      : "optim_grads_params"));
  }
  Hold("strategy.overlap_gradients");
  if (strategy.overlap_gradients.value_or(true)) {
    flags.push_back("--overlap-grad-reduce");
    if (TraitsOf(sharding).shards_step) {
      flags.push_back("--overlap-param-gather");
    }
  }
  return flags;
}

void Emitter::Megatron() {
  const StrategyChoice& strategy = run.config.strategy;
  std::vector<std::string> flags;
  const auto add = [&](const char* flag, int64_t value, const char* path) {
    flags.push_back(absl::StrCat("--", flag, " ", value));
    Hold(path);
  };
  add("tensor-model-parallel-size", *strategy.tp, "strategy.tp");
  add("pipeline-model-parallel-size", *strategy.pp, "strategy.pp");
  add("context-parallel-size", *strategy.cp, "strategy.cp");
  if (config.strategy.ep) {
    add("expert-model-parallel-size", *config.strategy.ep, "strategy.ep");
  }
  if (config.strategy.etp) {
    add("expert-tensor-parallel-size", *config.strategy.etp, "strategy.etp");
  }
  add("micro-batch-size", training.microbatch_size, "strategy.microbatch_size");
  flags.push_back(absl::StrCat("--global-batch-size ", batch()));
  for (std::string& flag : Layout()) flags.push_back(std::move(flag));
  if (training.sequence_parallel) flags.push_back("--sequence-parallel");
  if (*strategy.tp > 1) Hold("strategy.sequence_parallel");
  for (std::string& flag : Memory()) flags.push_back(std::move(flag));
  flags.push_back("--bf16");
  if (IsFp8(training.precision)) {
    // megatron/training/arguments.py, --fp8-recipe.
    flags.push_back("--fp8-format hybrid");
    const bool block = training.precision == Precision::kFp8Block;
    const bool mx = training.precision == Precision::kMxfp8;
    if (training.precision != Precision::kFp8) {
      flags.push_back(absl::StrCat("--fp8-recipe ", block ? "blockwise"
                                                    : mx  ? "mxfp8"
                                                          : "tensorwise"));
    }
    if (config.strategy.precision) Hold("strategy.precision");
  }
  if (training.precision == Precision::kNvfp4) {
    flags.push_back("--fp4-format e2m1");
    Hold("strategy.precision");
  }
  flags.push_back(absl::StrCat("--attention-backend ",
                               training.flash_attention ? "flash" : "unfused"));
  if (config.strategy.attention == Attention::kUnfused) {
    Hold("strategy.attention");
  }
  const ShapeParams* const shape = run.network.system_shape();
  const int per_node = shape == nullptr ? 1 : shape->devices_per_node;
  const int nodes = config.system.nodes.value_or(0);
  std::string launch = "torchrun";
  if (nodes > 0 && nodes * per_node == devices()) {
    absl::StrAppend(&launch, " --nnodes ", nodes, " --nproc-per-node ",
                    per_node);
    Hold("system.nodes");
    Hold("strategy.dp");
    Hold("strategy.microbatches");
  } else if (nodes > 0) {
    out.notes.push_back(
        "some devices stay idle: the number of processes is "
        "not in the launch line");
  }
  const std::string order =
      csv.empty() ? "" : absl::StrCat("# The order of passes: ", csv, "\n");
  out.text = absl::StrCat(
      "#!/bin/bash\n# Arguments for Megatron-LM. Comment lines with "
      "\"pipewright:\" are for\n# pipewright --from-args, which gives the same "
      "run again.\n",
      order, CommentsOf(config, held), "MODEL_ARGS=(\n  ",
      absl::StrJoin(ModelFlags(), "\n  "), "\n)\nPARALLEL_ARGS=(\n  ",
      absl::StrJoin(flags, "\n  "), "\n)\n", launch,
      " pretrain_gpt.py \\\n  \"${MODEL_ARGS[@]}\" \"${PARALLEL_ARGS[@]}\" "
      "\"$@\"\n");
}

void Emitter::Torchtitan() {
  const StrategyChoice& strategy = run.config.strategy;
  std::string text;
  const TitanModelRow* flavor = nullptr;
  for (const TitanModelRow& row : TitanModelRows()) {
    if (config.model.preset == std::string(row.preset)) flavor = &row;
  }
  if (flavor != nullptr) {
    absl::StrAppend(&text, "[model]\nname = \"", flavor->name,
                    "\"\nflavor = \"", flavor->flavor, "\"\n\n");
    Hold("model.preset");
  } else {
    out.notes.push_back(
        "torchtitan has no flavor for this model: [model] is "
        "yours to write");
  }
  absl::StrAppend(&text, "[training]\nlocal_batch_size = ",
                  int64_t{*strategy.microbatches} * training.microbatch_size,
                  "\nglobal_batch_size = ", batch(),
                  "\nseq_len = ", training.sequence, "\n\n");
  Hold("strategy.microbatches");
  Hold("strategy.microbatch_size");
  if (config.strategy.sequence) {
    Hold("strategy.sequence");
  } else {
    // The model's own; the reader is told so.
    absl::StrAppend(&out.text, kCommentMark, "strategy.sequence=\n");
  }
  const DataParallel sharding = DataParallelOf(strategy);
  const bool shards = TraitsOf(sharding).shards_gradients;
  if (sharding == DataParallel::kZero1) {
    out.notes.push_back(
        "torchtitan has no sharding of the optimizer alone "
        "(zero1): DDP is written");
  }
  if (config.strategy.fused_optimizer) {
    absl::StrAppend(&text, "[optimizer]\nimplementation = \"",
                    *config.strategy.fused_optimizer ? "fused" : "foreach",
                    "\"\n\n");
    Hold("strategy.fused_optimizer");
  }
  absl::StrAppend(
      &text, "[parallelism]\ndata_parallel_replicate_degree = ",
      shards ? 1 : training.dp,
      "\ndata_parallel_shard_degree = ", shards ? training.dp : 1,
      "\ntensor_parallel_degree = ", *strategy.tp,
      "\ncontext_parallel_degree = ", *strategy.cp,
      "\npipeline_parallel_degree = ", *strategy.pp,
      "\npipeline_parallel_microbatch_size = ", training.microbatch_size, "\n");
  if (config.strategy.ep) {
    absl::StrAppend(&text, "expert_parallel_degree = ", *config.strategy.ep,
                    "\n");
    if (*config.strategy.ep > 1) Hold("strategy.ep");
  }
  for (const char* path :
       {"strategy.tp", "strategy.cp", "strategy.pp", "strategy.dp"}) {
    Hold(path);
  }
  if (sharding == DataParallel::kFsdp && training.dp > 1) {
    absl::StrAppend(&text, "fsdp_reshard_after_forward = \"always\"\n");
    Hold("strategy.data_parallel");
  } else if (sharding == DataParallel::kZero2 && training.dp > 1) {
    absl::StrAppend(&text, "fsdp_reshard_after_forward = \"never\"\n");
    Hold("strategy.data_parallel");
  } else if (sharding == DataParallel::kDdp && training.dp > 1) {
    Hold("strategy.data_parallel");
  }
  if (*strategy.pp > 1) {
    const absl::StatusOr<ScheduleMatch> match =
        FindSchedule(run.schedule.lowered->name);
    const bool named = match.ok() && !match->info->torch_name.empty() &&
                       match->info->torch_params.empty();
    if (csv.empty()) {
      absl::StrAppend(&text, "pipeline_parallel_schedule = \"",
                      named ? match->info->torch_name : "1F1B", "\"\n");
      if (!named) {
        out.notes.push_back(
            "PyTorch has no schedule of this name: 1F1B is "
            "written; --emit with a file writes its CSV");
      }
    } else {
      absl::StrAppend(&text,
                      "pipeline_parallel_schedule = "
                      "\"_PipelineScheduleRuntime\"\n"
                      "pipeline_parallel_schedule_csv = \"",
                      csv, "\"\n");
    }
  }
  if (!config.strategy.layers.empty() || config.strategy.layout) {
    out.notes.push_back(
        "torchtitan splits layers by itself "
        "(pipeline_parallel_layers_per_stage and fewer at the "
        "ends): this layout is in a comment alone");
  }
  const bool full = training.recompute == Recompute::kFull;
  absl::StrAppend(&text, "\n[activation_checkpoint]\nmode = \"",
                  full                                     ? "full"
                  : training.recompute == Recompute::kNone ? "none"
                                                           : "selective",
                  "\"\n");
  if (full || training.recompute == Recompute::kNone) {
    Hold("strategy.recompute");
  }
  out.text = absl::StrCat(
      "# Configuration for torchtitan. Comment lines with \"pipewright:\" are "
      "for\n# pipewright --from-args, which gives the same run again.\n",
      out.text, CommentsOf(config, held), "\n", text);
}

}  // namespace

absl::StatusOr<EmittedArgs> EmitArgs(const RunConfig& config,
                                     const PreparedRun& run, ForeignForm form,
                                     const std::string& csv) {
  if (!run.prepared_model) {
    return absl::InvalidArgumentError(
        "--emit needs a model (--model), whose sizes it writes");
  }
  // The arguments are read as strategy.data_parallel, of which strategy.zero is
  // another word: both in one file could contradict each other.
  RunConfig written = config;
  if (written.strategy.zero) {
    written.strategy.data_parallel = DataParallelOf(written.strategy);
    written.strategy.zero.reset();
  }
  Emitter emitter = {written, run, run.prepared_model->spec,
                     run.prepared_model->training, csv};
  if (form == ForeignForm::kMegatron) {
    emitter.Megatron();
  } else {
    emitter.Torchtitan();
  }
  return std::move(emitter.out);
}

}  // namespace pipewright
