// A run as arguments of Megatron-LM or torchtitan.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/search/plan_layouts.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/foreign/foreign_args.h"
#include "sim/foreign/titan_models.h"
#include "sim/model/precision.h"
#include "sim/schedule/registry.h"

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
  std::set<std::string> held;  // fields that the target's own words say
  std::vector<std::string> flags;
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
  void Flag(absl::string_view words) {
    flags.push_back(absl::StrCat("--", words));
  }

  absl::Status Megatron();
  void Model();
  void Experts();
  void Layout();
  void Recomputation();
  void Sharding();
  void Types();
  void Kernels();
  absl::Status Torchtitan();
};

void Emitter::Model() {
  const auto size = [this](const char* flag, int64_t value) {
    Flag(absl::StrCat(flag, " ", value));
  };
  size("num-layers", model.layers);
  size("hidden-size", model.hidden);
  size("ffn-hidden-size",
       model.ffn_hidden > 0 ? model.ffn_hidden : model.expert_ffn_hidden);
  size("num-attention-heads", model.heads);
  if (model.kv_lora_rank > 0) {
    Flag("multi-latent-attention");
    if (model.q_lora_rank > 0) size("q-lora-rank", model.q_lora_rank);
    size("kv-lora-rank", model.kv_lora_rank);
    size("qk-head-dim", model.qk_nope_head_dim);
    size("qk-pos-emb-head-dim", model.qk_rope_head_dim);
    size("v-head-dim", model.v_head_dim);
  } else {
    if (model.kv_heads != model.heads) {
      Flag("group-query-attention");
      size("num-query-groups", model.kv_heads);
    }
    if (model.head_dim > 0) size("kv-channels", model.head_dim);
  }
  if (model.experts > 0) Experts();
  if (model.mtp_layers > 0) size("mtp-num-layers", model.mtp_layers);
  if (model.window > 0) {
    Flag(absl::StrCat("window-size '(", model.window, ",0)'"));
    if (model.full_attention_every > 0) {
      size("window-attn-skip-freq", model.full_attention_every);
    }
  }
  const int tp = *run.config.strategy.tp;
  size("vocab-size", model.vocabulary);
  if (model.vocabulary % (int64_t{128} * tp) != 0) {
    size("make-vocab-size-divisible-by", 1);
  }
  size("seq-length", training.sequence);
  size("max-position-embeddings",
       model.positions > 0 ? model.positions : training.sequence);
  Flag(absl::StrCat("position-embedding-type ",
                    model.positions > 0 ? "learned_absolute" : "rope"));
  Flag(model.layer_norm ? "normalization LayerNorm" : "normalization RMSNorm");
  if (model.gated) Flag("swiglu");
  if (!model.tied_embeddings) Flag("untie-embeddings-and-output-weights");
  if (!model.bias) Flag("disable-bias-linear");
  if (model.qkv_bias && !model.bias) Flag("add-qkv-bias");
  if (model.qk_norm) Flag("qk-layernorm");
  if (!model.dropout) {
    Flag("hidden-dropout 0");
    Flag("attention-dropout 0");
  }
}

// Routers of these models weigh experts by sigmoids (their own config.json).
bool HasSigmoidRouter(const std::string& model) {
  return absl::StartsWith(model, "deepseek-v3") ||
         absl::StartsWith(model, "kimi-k2") || model == "moonlight-16b";
}

void Emitter::Experts() {
  Flag(absl::StrCat("num-experts ", model.experts));
  if (model.expert_layer_every > 1) {
    std::vector<int> has(model.layers);
    for (int64_t layer = model.first_dense_layers; layer < model.layers;
         layer += model.expert_layer_every) {
      has[layer] = 1;
    }
    Flag(absl::StrCat("moe-layer-freq '[", absl::StrJoin(has, ","), "]'"));
  } else if (model.first_dense_layers > 0) {
    Flag(absl::StrCat("moe-layer-freq '([0]*", model.first_dense_layers,
                      "+[1]*", model.layers - model.first_dense_layers, ")'"));
  }
  Flag(absl::StrCat("moe-router-topk ", model.experts_per_token));
  Flag(absl::StrCat("moe-ffn-hidden-size ", model.expert_ffn_hidden));
  if (model.shared_ffn_hidden > 0) {
    Flag(absl::StrCat("moe-shared-expert-intermediate-size ",
                      model.shared_ffn_hidden));
  }
  if (HasSigmoidRouter(model.name)) {
    Flag("moe-router-score-function sigmoid");
    Flag("moe-router-enable-expert-bias");
  }
  Flag("moe-grouped-gemm");
  const Execution& execution = training.execution;
  if (execution.dispatch == ExpertDispatch::kOnce) {
    Flag("moe-token-dispatcher-type flex");
    Flag("moe-flex-dispatcher-backend deepep");
  } else {
    Flag("moe-token-dispatcher-type alltoall");
  }
  Hold("strategy.dispatch");
  if (execution.overlap_experts) {
    Flag("overlap-moe-expert-parallel-comm");
    Hold("strategy.overlap_experts");
  }
}

// What a model has that no argument of Megatron-LM says; "" for nothing.
std::string NotOfMegatron(const ModelSpec& model) {
  if (model.lora_rank > 0 || model.frozen_layers > 0) {
    return "fine-tuning of a part of the weights";
  }
  if (model.token_types > 0 || model.pooler || model.masked_lm_head ||
      model.embedding_norm) {
    return "parts of BERT";
  }
  if (model.post_norms || !model.pre_norms || model.qk_norm_whole) {
    return "norms in other places";
  }
  if (model.attention_sinks) return "attention sinks";
  if (model.chunked_window || model.full_attention_first > 0) {
    return "windows of this kind";
  }
  if (model.expert_bias || model.projection_bias || model.shared_gate) {
    return "biases and gates of single parts";
  }
  if (!model.causal) return "attention that is not causal";
  if (!model.final_norm) return "no norm behind the last layer";
  return "";
}

// Chunks and layers.
void Emitter::Layout() {
  const StrategyChoice& strategy = run.config.strategy;
  if (!config.strategy.layers.empty()) {
    Flag(absl::StrCat("pipeline-model-parallel-layout '",
                      MegatronLayout(config.strategy.layers, model.mtp_layers),
                      "'"));
    Hold("strategy.layers");
  } else if (config.strategy.layout) {
    Flag(absl::StrCat("pipeline-model-parallel-layout '",
                      *config.strategy.layout, "'"));
    Hold("strategy.layout");
  } else if (*strategy.vpp > 1) {
    Flag(absl::StrCat("num-virtual-stages-per-pipeline-rank ", *strategy.vpp));
  }
  Hold("strategy.vpp");
  Hold("schedule.name");
  if (*strategy.vpp > 1 && strategy.waiting == WaitRule::kBatched) {
    Flag("no-overlap-p2p-communication");
    Hold("strategy.waiting");
  }
}

void Emitter::Recomputation() {
  Hold("strategy.recompute");
  switch (training.recompute) {
    case Recompute::kNone:
      return;
    case Recompute::kSelective: {
      Flag("recompute-granularity selective");
      std::string modules;
      for (const ChoiceRow& row : RecomputeModuleChoices()) {
        if ((training.recompute_modules & row.value) != 0) {
          absl::StrAppend(&modules, " ", row.name);
        }
      }
      Hold("strategy.recompute_modules");
      return Flag(absl::StrCat("recompute-modules", modules));
    }
    case Recompute::kNormActivation:
      Flag("recompute-granularity selective");
      Flag("recompute-modules layernorm moe_act");
      out.notes.push_back(
          "Megatron-LM recomputes norms and, of experts, activation functions: "
          "less than norm-activation does in dense layers");
      return;
    case Recompute::kOpSelective:
      out.notes.push_back(
          "Megatron-LM has no recomputation by operations (op-selective)");
      return;
    case Recompute::kFull:
      break;
  }
  Flag("recompute-granularity full");
  if (training.recompute_layers > 0) {
    Flag("recompute-method block");
    Flag(absl::StrCat("recompute-num-layers ", training.recompute_layers));
    return Hold("strategy.recompute_layers");
  }
  Flag("recompute-method uniform");
  Flag("recompute-num-layers 1");
}

void Emitter::Sharding() {
  if (training.dp * training.cp == 1) return;
  const StrategyChoice& strategy = run.config.strategy;
  const bool given = strategy.data_parallel || strategy.zero;
  const DataParallel sharding =
      given ? DataParallelOf(strategy) : DataParallel::kDdp;
  if (given && sharding != DataParallel::kNone) Hold("strategy.data_parallel");
  if (sharding != DataParallel::kDdp && sharding != DataParallel::kNone) {
    Flag("use-distributed-optimizer");
  }
  if (sharding == DataParallel::kZero2 || sharding == DataParallel::kFsdp) {
    Flag("use-megatron-fsdp");
    Flag("ckpt-format fsdp_dtensor");
    Flag(absl::StrCat("data-parallel-sharding-strategy ",
                      sharding == DataParallel::kZero2 ? "optim_grads"
                                                       : "optim_grads_params"));
  }
  Hold("strategy.overlap_gradients");
  if (strategy.overlap_gradients.value_or(true)) {
    Flag("overlap-grad-reduce");
    if (TraitsOf(sharding).shards_step) Flag("overlap-param-gather");
  }
}

// Types of what is kept for a weight.
void Emitter::Types() {
  const StrategyChoice& strategy = run.config.strategy;
  Flag("bf16");
  const int gradient = strategy.gradient_bytes_per_parameter.value_or(4);
  const double moments = strategy.moment_bytes_per_parameter.value_or(8);
  const double master = strategy.master_bytes_per_parameter.value_or(4);
  const auto type = [](double bytes) {
    return bytes == 4 ? "fp32" : bytes == 2 ? "bf16" : "fp8";
  };
  if (gradient == 2) Flag("grad-reduce-in-bf16");
  if (moments != 8 || master != 4) {
    Flag("use-precision-aware-optimizer");
    Flag(absl::StrCat("main-grads-dtype ", type(gradient)));
    Flag(absl::StrCat("main-params-dtype ", master == 4 ? "fp32" : "fp16"));
    Flag(absl::StrCat("exp-avg-dtype ", type(moments / 2)));
    Flag(absl::StrCat("exp-avg-sq-dtype ", type(moments / 2)));
  }
  Hold("strategy.gradient_bytes_per_parameter");
  if ((moments == 8 || moments == 4 || moments == 2) &&
      (master == 4 || master == 2)) {
    Hold("strategy.moment_bytes_per_parameter");
    Hold("strategy.master_bytes_per_parameter");
  }
}

void Emitter::Kernels() {
  if (IsFp8(training.precision)) {
    Flag("fp8-format hybrid");
    const bool block = training.precision == Precision::kFp8Block;
    const bool mx = training.precision == Precision::kMxfp8;
    Flag(absl::StrCat("fp8-recipe ", training.precision == Precision::kFp8
                                         ? "delayed"
                                     : block ? "blockwise"
                                     : mx    ? "mxfp8"
                                             : "tensorwise"));
    if (training.narrow_weights) {
      Flag("fp8-param-gather");
      if (mx) Flag("reuse-grad-buf-for-mxfp8-param-ag");
      Hold("strategy.narrow_weights");
    }
    if (training.execution.fp8_attention) {
      Flag("fp8-dot-product-attention");
      Hold("strategy.fp8_attention");
    }
  }
  if (training.precision == Precision::kNvfp4) Flag("fp4-format e2m1");
  if (config.strategy.precision) Hold("strategy.precision");
  Flag(absl::StrCat("attention-backend ",
                    training.flash_attention ? "flash" : "unfused"));
  if (config.strategy.attention) Hold("strategy.attention");
  if (training.fused_cross_entropy) Flag("cross-entropy-loss-fusion");
  Hold("strategy.fused_cross_entropy");
  const Execution& execution = training.execution;
  if (execution.overlap_tensor) {
    Flag("tp-comm-overlap");
    Hold("strategy.overlap_tensor");
  }
  if (execution.launch == Launch::kGraphs) {
    Flag("cuda-graph-impl transformer_engine");
    std::vector<std::string> modules;
    const std::pair<OpPart, const char*> parts[] = {
        {OpPart::kAttention, "attn"},
        {OpPart::kDense, "mlp"},
        {OpPart::kRouter, "moe_router"},
        {OpPart::kExperts, "moe"}};
    for (const auto& [part, module] : parts) {
      if ((execution.graph_parts & static_cast<int>(part)) != 0) {
        modules.emplace_back(module);
      }
    }
    Flag(absl::StrCat("cuda-graph-modules ", absl::StrJoin(modules, " ")));
    Hold("strategy.launch");
    Hold("strategy.graph_parts");
  }
}

absl::Status Emitter::Megatron() {
  const std::string part = NotOfMegatron(model);
  if (!part.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--emit megatron: its arguments cannot say ", part));
  }
  const StrategyChoice& strategy = run.config.strategy;
  const std::string& name = run.schedule.lowered->name;
  if (name != "1f1b" && name != "interleaved-1f1b") {
    return absl::FailedPreconditionError(
        absl::StrCat("--emit megatron: Megatron-LM has 1F1B and interleaved "
                     "1F1B alone; schedule ",
                     name, " is not among them"));
  }
  Model();
  for (const char* path : {"model.preset", "model.hf", "strategy.framework",
                           "strategy.sequence"}) {
    Hold(path);
  }
  for (const ModelSizeRow& row : ModelSizeRows()) Hold(row.path);
  for (const ModelPropertyRow& row : ModelPropertyRows()) Hold(row.path);
  const std::vector<std::string> model_flags = std::move(flags);
  flags.clear();
  const auto add = [&](const char* flag, int64_t value, const char* path) {
    Flag(absl::StrCat(flag, " ", value));
    Hold(path);
  };
  add("tensor-model-parallel-size", *strategy.tp, "strategy.tp");
  add("pipeline-model-parallel-size", *strategy.pp, "strategy.pp");
  add("context-parallel-size", *strategy.cp, "strategy.cp");
  if (model.experts > 0) {
    add("expert-model-parallel-size", config.strategy.ep.value_or(1),
        "strategy.ep");
    add("expert-tensor-parallel-size",
        config.strategy.etp.value_or(*strategy.tp), "strategy.etp");
  }
  add("micro-batch-size", training.microbatch_size, "strategy.microbatch_size");
  Flag(absl::StrCat("global-batch-size ", batch()));
  Layout();
  if (training.sequence_parallel) Flag("sequence-parallel");
  if (*strategy.tp > 1) Hold("strategy.sequence_parallel");
  Recomputation();
  Sharding();
  Types();
  Kernels();
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
      "#!/bin/bash\n# Arguments for Megatron-LM (d98e8a64). "
      "Comment lines with\n# \"pipewright:\" are for pipewright --from-args: "
      "what Megatron-LM does not know.\n",
      order, CommentsOf(config, held), "MODEL_ARGS=(\n  ",
      absl::StrJoin(model_flags, "\n  "), "\n)\nPARALLEL_ARGS=(\n  ",
      absl::StrJoin(flags, "\n  "), "\n)\n", launch,
      " pretrain_gpt.py \\\n  \"${MODEL_ARGS[@]}\" \"${PARALLEL_ARGS[@]}\" "
      "\"$@\"\n");
  return absl::OkStatus();
}

// Names of the modules of each stage, a list a line.
std::string ModuleParts(const StageLayout& layout) {
  std::string text;
  int64_t layer = 0;
  const size_t stages = layout.stages.size();
  for (size_t stage = 0; stage < stages; ++stage) {
    std::vector<std::string> modules;
    if (stage == 0) modules.push_back("\"tok_embeddings\"");
    const int64_t count = layout.LayersOf(static_cast<int>(stage));
    for (int64_t each = 0; each < count; ++each) {
      modules.push_back(absl::StrCat("\"layers.", layer++, "\""));
    }
    if (stage + 1 == stages) {
      modules.insert(modules.end(), {"\"norm\"", "\"output\""});
    }
    absl::StrAppend(&text, "  [", absl::StrJoin(modules, ", "), "],\n");
  }
  return text;
}

absl::Status Emitter::Torchtitan() {
  const StrategyChoice& strategy = run.config.strategy;
  const DataParallel sharding = DataParallelOf(strategy);
  const bool alone = *strategy.pp * *strategy.tp * *strategy.cp == 1;
  const bool shards = sharding == DataParallel::kFsdp;
  if (training.dp > 1 && !shards &&
      !(alone && sharding == DataParallel::kDdp)) {
    return absl::FailedPreconditionError(
        "--emit torchtitan: it shards weights layer by layer (--data-parallel "
        "fsdp), or has replicas alone (ddp with pp, tp and cp 1)");
  }
  std::string text;
  const auto [name, flavor] = TitanOfPreset(config.model.preset.value_or(""));
  if (!name.empty()) {
    absl::StrAppend(&text, "[model]\nname = \"", name, "\"\nflavor = \"",
                    flavor, "\"\n\n");
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
  if (shards && training.dp > 1) {
    const bool again = strategy.reshard_after_forward.value_or(true);
    absl::StrAppend(&text, "fsdp_reshard_after_forward = \"",
                    again ? "always" : "never", "\"\n");
    Hold("strategy.reshard_after_forward");
    Hold("strategy.shard_blocks");
  }
  Hold("strategy.data_parallel");
  Hold("strategy.framework");
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
      // The name says how many stages a rank has, and where they are.
      const bool turns =
          run.schedule.lowered->placement.shape() == Placement::Shape::kV;
      absl::StrAppend(&text, "pipeline_parallel_schedule = \"",
                      *strategy.vpp == 1 ? "1F1B"
                      : turns            ? "ZBVZeroBubble"
                                         : "PipelineScheduleMulti",
                      "\"\npipeline_parallel_schedule_csv = \"", csv, "\"\n");
    }
  }
  if (*strategy.pp > 1) {
    absl::StrAppend(&text, "module_fqns_per_model_part = [\n",
                    ModuleParts(run.prepared_model->layout), "]\n");
    Hold("strategy.layers");
    Hold("strategy.layout");
    Hold("strategy.split");
    Hold("strategy.vpp");
  }
  const Recompute recompute = training.recompute;
  const bool full = recompute == Recompute::kFull;
  const bool every_nth = full && training.recompute_every > 1;
  absl::StrAppend(&text, "\n[activation_checkpoint]\nmode = \"",
                  full && !every_nth              ? "full"
                  : recompute == Recompute::kNone ? "none"
                                                  : "selective",
                  "\"\n");
  if (every_nth) {
    absl::StrAppend(&text, "selective_ac_option = \"", training.recompute_every,
                    "\"\n");
    Hold("strategy.recompute_every");
  } else if (recompute == Recompute::kOpSelective) {
    absl::StrAppend(&text, "selective_ac_option = \"op\"\n");
  }
  if (full || recompute == Recompute::kNone ||
      recompute == Recompute::kOpSelective) {
    Hold("strategy.recompute");
  }
  out.text = absl::StrCat(
      "# Configuration for torchtitan. Comment lines with \"pipewright:\" are "
      "for\n# pipewright --from-args, which gives the same run again.\n",
      out.text, CommentsOf(config, held), "\n", text);
  return absl::OkStatus();
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
    PW_RETURN_IF_ERROR(emitter.Megatron());
  } else {
    PW_RETURN_IF_ERROR(emitter.Torchtitan());
  }
  return std::move(emitter.out);
}

}  // namespace pipewright
