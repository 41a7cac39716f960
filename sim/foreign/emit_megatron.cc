// A run as arguments of Megatron-LM (d98e8a64, megatron/training/arguments.py
// and the dataclasses that flags are made of).
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/analysis/search/plan_layouts.h"
#include "sim/base/status.h"
#include "sim/config/config_types.h"
#include "sim/foreign/emission.h"
#include "sim/model/layer_kinds.h"
#include "sim/model/precision.h"
#include "sim/topology/registry.h"

namespace pipewright {
namespace {

struct MegatronArgs {
  explicit MegatronArgs(Emission* target)
      : emission(*target),
        config(target->config),
        run(target->run),
        model(target->model),
        training(target->training) {}

  Emission& emission;
  const RunConfig& config;
  const PreparedRun& run;
  const ModelSpec& model;
  const TrainingSpec& training;
  std::vector<std::string> flags;

  void Hold(const char* path) { emission.Hold({path}); }
  void Flag(absl::string_view words) {
    flags.push_back(absl::StrCat("--", words));
  }

  void Model();
  void Experts();
  void Pattern();
  void Parallelism();
  void Layout();
  void Recomputation();
  void Sharding();
  void Types();
  void Kernels();
};

void MegatronArgs::Model() {
  const auto size = [this](const char* flag, int64_t value) {
    Flag(absl::StrCat(flag, " ", value));
  };
  if (model.kinds.empty()) {
    size("num-layers", model.layers);
  } else {
    Pattern();
  }
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
  if (model.mtp_layers > 0 && model.kinds.empty()) {
    size("mtp-num-layers", model.mtp_layers);
  }
  if (model.attention_gate) Flag("attention-output-gate");
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
                    model.positions > 0     ? "learned_absolute"
                    : model.rotary_dim == 0 ? "none"
                                            : "rope"));
  Flag(model.layer_norm ? "normalization LayerNorm" : "normalization RMSNorm");
  if (model.gated) Flag("swiglu");
  if (!model.tied_embeddings) Flag("untie-embeddings-and-output-weights");
  if (!model.bias) Flag("disable-bias-linear");
  if (model.qkv_bias && !model.bias) Flag("add-qkv-bias");
  // Latent attention has norms of its own, and none without the flag.
  if (model.qk_norm || model.has_mla()) Flag("qk-layernorm");
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

// Stages stand in the pattern, in the order of the forward pass.
void MegatronArgs::Pattern() {
  std::string letters = LettersOf(model.kinds);
  if (model.has_mla()) absl::StrReplaceAll({{"*", "+"}}, &letters);
  std::string pattern;
  const StageLayout& layout = run.prepared_model->layout;
  size_t at = 0;
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    const int64_t layers = layout.LayersOf(static_cast<int>(stage));
    absl::StrAppend(&pattern, stage > 0 ? "|" : "", letters.substr(at, layers));
    at += static_cast<size_t>(layers);
  }
  emission.Hold({"strategy.layers", "strategy.layout", "strategy.split"});
  for (int64_t layer = 0; layer < model.mtp_layers; ++layer) {
    absl::StrAppend(&pattern, "/", model.has_mla() ? "+" : "*",
                    model.has_experts() ? "E" : "-");
  }
  Flag(absl::StrCat("hybrid-layer-pattern '", pattern, "'"));
  Hold("model.pattern");
  const auto size = [this](const char* flag, int64_t value) {
    Flag(absl::StrCat(flag, " ", value));
  };
  if (model.Has(Mixer::kMamba)) {
    size("mamba-num-heads", model.mamba_heads);
    size("mamba-head-dim", model.mamba_head_dim);
    size("mamba-num-groups", model.mamba_groups);
    size("mamba-state-dim", model.mamba_state);
  }
  if (model.Has(Mixer::kDelta)) {
    size("linear-num-key-heads", model.delta_key_heads);
    size("linear-num-value-heads", model.delta_value_heads);
    size("linear-key-head-dim", model.delta_key_dim);
    size("linear-value-head-dim", model.delta_value_dim);
    size("linear-conv-kernel-dim", model.conv_kernel);
  }
}

void MegatronArgs::Experts() {
  Flag(absl::StrCat("num-experts ", model.experts));
  if (model.expert_latent > 0) {
    Flag(absl::StrCat("moe-latent-size ", model.expert_latent));
  }
  if (model.shared_gate) Flag("moe-shared-expert-gate");
  if (!model.kinds.empty()) {
    // The pattern says which layers have them.
  } else if (model.expert_layer_every > 1) {
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
  if (execution.fused_permutation) Flag("moe-permute-fusion");
  Hold("strategy.fused_permutation");
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
  if (model.expert_bias || model.projection_bias) {
    return "biases of single parts";
  }
  for (const LayerKind& kind : model.kinds) {
    if (kind.parts() == 2) {
      return "layers of several kinds with two parts each (model.pattern, "
             "(GE))";
    }
  }
  if (model.rotary_dim > 0 || (model.rotary_dim == 0 && model.kinds.empty())) {
    return "a rotary embedding of a part of each head";
  }
  if (!model.Has(Mixer::kAttention)) return "a model without attention";
  if (model.Has(Mixer::kMamba) && model.scan_chunk > 0 &&
      model.scan_chunk != 128) {
    return "chunks of Mamba's scan other than of 128 tokens";
  }
  if (model.mamba_bias) return "biases of Mamba's projections";
  if (model.Has(Mixer::kMamba) && !model.mamba_conv_bias) {
    return "Mamba's convolution without a bias";
  }
  if (model.Has(Mixer::kMamba) && model.conv_kernel != 4) {
    return "another reach of Mamba's convolution than 4";
  }
  if (!model.causal) return "attention that is not causal";
  if (!model.final_norm) return "no norm behind the last layer";
  return "";
}

// Chunks and layers.
void MegatronArgs::Layout() {
  const StrategyChoice& strategy = run.config.strategy;
  if (!model.kinds.empty()) {
    // The pattern has the stages.
  } else if (!config.strategy.layers.empty()) {
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

void MegatronArgs::Recomputation() {
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
    default:  // full; others are refused
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

void MegatronArgs::Sharding() {
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
void MegatronArgs::Types() {
  const StrategyChoice& strategy = run.config.strategy;
  Flag("bf16");
  const int gradient = strategy.gradient_bytes_per_parameter.value_or(4);
  const double moments = strategy.moment_bytes_per_parameter.value_or(8);
  const double master = strategy.master_bytes_per_parameter.value_or(4);
  const OptimizerRule& rule = training.optimizer;
  switch (rule.kind) {
    case OptimizerKind::kMuon:
      Flag("optimizer muon");
      Flag(absl::StrCat("muon-num-ns-steps ", rule.newton_schulz_steps));
      Flag(absl::StrCat("muon-tp-mode ",
                        ChoiceName(MuonTpModeChoices(), rule.tp_mode)));
      if (!rule.splits_qkv) Flag("muon-no-split-qkv");
      break;
    case OptimizerKind::kSgd:
      Flag("optimizer sgd");
      Flag("sgd-momentum 0");
      break;
    case OptimizerKind::kSgdMomentum:
      Flag("optimizer sgd");
      break;
    case OptimizerKind::kLion:
      Flag("optimizer lion");
      break;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdafactor:  // refused before
      break;
  }
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
  emission.Hold({"strategy.optimizer_kind", "strategy.muon_steps",
                 "strategy.muon_tp_mode", "strategy.muon_splits_qkv",
                 "strategy.muon_distribution",
                 "strategy.momentum_bytes_per_parameter",
                 "strategy.gradient_bytes_per_parameter",
                 "strategy.moment_bytes_per_parameter",
                 "strategy.master_bytes_per_parameter"});
}

void MegatronArgs::Kernels() {
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

void MegatronArgs::Parallelism() {
  const StrategyChoice& strategy = run.config.strategy;
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
  Flag(absl::StrCat("global-batch-size ", emission.batch()));
  Layout();
  if (training.sequence_parallel) Flag("sequence-parallel");
  if (*strategy.tp > 1) Hold("strategy.sequence_parallel");
  Recomputation();
  Sharding();
  Types();
  Kernels();
}

}  // namespace

absl::StatusOr<MegatronFlags> MegatronFlagsOf(Emission* emission,
                                              absl::string_view target) {
  const std::string part = NotOfMegatron(emission->model);
  const std::string& name = emission->run.schedule.lowered->name;
  const Recompute recompute = emission->training.recompute;
  const StrategyChoice& strategy = emission->strategy();
  const double moments = strategy.moment_bytes_per_parameter.value_or(8);
  const double master = strategy.master_bytes_per_parameter.value_or(4);
  const double gradient = strategy.gradient_bytes_per_parameter.value_or(4);
  const OptimizerRule& rule = emission->training.optimizer;
  const bool is_adam = rule.kind == OptimizerKind::kAdam;
  const bool is_gathered = rule.is_muon() && emission->training.zero > 0 &&
                           rule.distribution == MuonDistribution::kGathered;
  PW_RETURN_IF_ERROR(RefuseUnsayable(
      target,
      {{!part.empty(), part},
       {name != "1f1b" && name != "interleaved-1f1b",
        absl::StrCat("schedule ", name,
                     ": Megatron-LM has 1F1B and interleaved 1F1B alone")},
       {recompute != Recompute::kNone && recompute != Recompute::kSelective &&
            recompute != Recompute::kFull,
        "recomputation other than none, selective, full"},
       {moments != 8 && moments != 4 && moments != 2,
        absl::StrCat("moments of ", moments, " bytes; allowed: 8, 4, 2")},
       {master != 4 && master != 2,
        absl::StrCat("master weights of ", master, " bytes; allowed: 4, 2")},
       {rule.kind == OptimizerKind::kAdafactor, "optimizer adafactor"},
       {!is_adam && (moments != 8 || master != 4),
        "types of moments and master weights with an optimizer other than "
        "Adam"},
       {!is_adam && rule.momentum_bytes != 4,
        absl::StrCat("a momentum of ", rule.momentum_bytes,
                     " bytes; allowed: 4")},
       {is_gathered, "muon_distribution gathered"},
       {gradient != 4 && gradient != 2,
        absl::StrCat("gradients of ", gradient, " bytes; allowed: 4, 2")},
       {emission->training.recompute_every > 1,
        "recomputation of every Nth layer"},
       {strategy.offload.value_or(OffloadMode::kNone) != OffloadMode::kNone,
        "offloaded activations"}}));
  emission->HoldModel();
  emission->Hold(
      {"strategy.framework", "strategy.sequence", "strategy.offload"});
  MegatronArgs args(emission);
  args.Model();
  MegatronFlags flags = {.model = std::move(args.flags)};
  args.flags.clear();
  args.Parallelism();
  flags.parallel = std::move(args.flags);
  return flags;
}

std::string TorchrunLine(Emission* emission) {
  const ShapeParams* const shape = emission->run.network.system_shape();
  const int per_node = shape == nullptr ? 1 : shape->devices_per_node;
  const int nodes = emission->config.system.nodes.value_or(0);
  const StrategyChoice& strategy = emission->strategy();
  if (nodes == 0) return "torchrun";
  if (nodes * per_node !=
      *strategy.pp * *strategy.dp * *strategy.tp * *strategy.cp) {
    emission->out.notes.push_back(
        "some devices stay idle: the number of processes is "
        "not in the launch line");
    return "torchrun";
  }
  emission->Hold({"system.nodes", "strategy.dp", "strategy.microbatches"});
  return absl::StrCat("torchrun --nnodes ", nodes, " --nproc-per-node ",
                      per_node);
}

absl::Status EmitMegatron(Emission* emission) {
  PW_ASSIGN_OR_RETURN(const MegatronFlags flags,
                      MegatronFlagsOf(emission, "megatron"));
  // Megatron-LM checks this before Blackwell (arguments.py:1476), and not with
  // what needs more connections.
  const bool one_connection =
      emission->training.tp * emission->training.cp > 1 &&
      !emission->training.execution.overlap_experts &&
      !absl::c_linear_search(flags.parallel, "--use-megatron-fsdp");
  const std::string launch = absl::StrCat(
      one_connection ? "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" : "",
      TorchrunLine(emission));
  const std::string order =
      emission->csv.empty()
          ? ""
          : absl::StrCat("# The order of passes: ", emission->csv, "\n");
  emission->out.text = absl::StrCat(
      "#!/bin/bash\n# Arguments for Megatron-LM (d98e8a64). "
      "Comment lines with\n# \"pipewright:\" are for pipewright --from-args: "
      "what Megatron-LM does not know.\n",
      order, emission->Comments(), "MODEL_ARGS=(\n  ",
      absl::StrJoin(flags.model, "\n  "), "\n)\nPARALLEL_ARGS=(\n  ",
      absl::StrJoin(flags.parallel, "\n  "), "\n)\n", launch,
      emission->model.kinds.empty() ? " pretrain_gpt.py"
                                    : " pretrain_hybrid.py",
      " \\\n  \"${MODEL_ARGS[@]}\" \"${PARALLEL_ARGS[@]}\" "
      "\"$@\"\n");
  return absl::OkStatus();
}

}  // namespace pipewright
