#include "calibrate/grid.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/cost/profile_shape.h"

namespace pipewright {
namespace {

// Llama's (arXiv 2407.21783, table 3 and config.json) and GPT-2's.
constexpr float kRotaryBase = 500000;
constexpr float kEpsilon = 1e-5f;

absl::Status CheckKernels(const ModelSpec& model) {
  const auto refuse = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", model.name, " has ", what,
        ", for which there are no kernels; allowed: models of GPT's, Llama's "
        "or Mixtral's kind (pipewright list models), or a profile from a trace "
        "of "
        "your own training run"));
  };
  if (model.has_mla()) return refuse("multi-head latent attention");
  if (model.mtp_layers > 0) return refuse("multi-token prediction");
  if (model.frozen_layers > 0) return refuse("frozen layers");
  if (model.lora_rank > 0) return refuse("LoRA adapters");
  if (model.window > 0) return refuse("windows of attention");
  if (!model.kinds.empty()) return refuse("layers of several kinds");
  if (model.attention_gate) return refuse("gates of attention");
  if (model.expert_latent > 0) return refuse("a projection before experts");
  if (model.pooler || model.masked_lm_head) return refuse("BERT's head");
  return absl::OkStatus();
}

// The kernels have two kinds of blocks. Lists what of the model is in neither.
std::vector<std::string> Differences(const ModelSpec& model) {
  std::vector<std::string> differences;
  const auto differs = [&](absl::string_view what) {
    differences.push_back(
        absl::StrCat("model ", model.name, ": ", what,
                     ": the measured times are those of the kernels' block"));
  };
  if (model.gated) {
    if (model.qk_norm) differs("norms of queries and keys are left out");
    if (model.qkv_bias || model.bias) differs("biases are left out");
    if (model.layer_norm) differs("RMSNorm stands for LayerNorm");
  } else if (!model.layer_norm || !model.bias) {
    differs("LayerNorm and biases are added");
  }
  if (model.dropout) differs("dropout is left out");
  if (model.post_norms || !model.pre_norms) {
    differs("norms stand in front of each part alone");
  }
  if (model.attention_sinks) differs("sinks of attention are left out");
  if (model.has_experts()) {
    differs(
        "every expert gets equally many rows, which no router is sure to give");
    if (model.bias) differs("experts have no biases");
  }
  return differences;
}

bool Divides(int64_t tp, const ModelSpec& model) {
  return model.heads % tp == 0 && model.ffn_hidden % tp == 0 &&
         model.expert_ffn_hidden % tp == 0 &&
         model.shared_ffn_hidden % tp == 0 && model.vocabulary % tp == 0 &&
         (model.kv_heads % tp == 0 || tp % model.kv_heads == 0);
}

template <class Value>
std::vector<Value> Sorted(std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

absl::Status CheckSizes(absl::string_view flag,
                        const std::vector<int64_t>& values, int64_t most) {
  for (const int64_t value : values) {
    if (value < 1 || value > most) {
      return BadValue(flag, absl::StrCat(value), absl::StrCat("1 to ", most));
    }
  }
  return absl::OkStatus();
}

ShapeOptions WithDefaults(const ModelSpec& model, ShapeOptions options) {
  if (options.microbatch_sizes.empty()) {
    options.microbatch_sizes =
        options.quick ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2, 4};
  }
  if (options.sequences.empty()) {
    options.sequences = {model.sequence};
    if (!options.quick && model.sequence >= 32) {
      options.sequences.push_back(model.sequence / 2);
    }
  }
  if (options.tps.empty()) {
    options.tps = {1};
    if (!options.quick && Divides(2, model)) options.tps.push_back(2);
  }
  options.microbatch_sizes = Sorted(options.microbatch_sizes);
  options.sequences = Sorted(options.sequences);
  if (options.eps.empty()) options.eps = {1};
  options.tps = Sorted(options.tps);
  options.eps = Sorted(options.eps);
  options.sliced = Sorted(options.sliced);
  return options;
}

absl::Status CheckExpertParallelism(const ModelSpec& model,
                                    const std::vector<int64_t>& eps) {
  for (const int64_t ep : eps) {
    if (model.has_experts() ? ep >= 1 && model.experts % ep == 0 : ep == 1) {
      continue;
    }
    return BadValue("--ep", absl::StrCat(ep),
                    model.has_experts()
                        ? absl::StrCat("divisors of the ", model.experts,
                                       " experts of ", model.name)
                        : absl::StrCat("1 (", model.name, " has no experts)"));
  }
  return absl::OkStatus();
}

std::vector<PwPart> PartsOf(const ModelSpec& model) {
  std::vector<PwPart> parts = {PW_EMBEDDING};
  for (const ProfilePart part : LayerPartsOf(model)) {
    parts.push_back(part == ProfilePart::kLayer ? PW_LAYER : PW_EXPERT_LAYER);
  }
  parts.push_back(PW_HEAD);
  return parts;
}

// "14336", "18432, of experts 2048 and 1024".
std::string WidthsOf(const ModelSpec& model) {
  std::string widths = absl::StrCat(model.ffn_hidden);
  if (!model.has_experts()) return widths;
  absl::StrAppend(&widths, ", of experts ", model.expert_ffn_hidden);
  if (model.shared_ffn_hidden > 0) {
    absl::StrAppend(&widths, " and ", model.shared_ffn_hidden);
  }
  return widths;
}

// Pairs of ep and tp.
std::vector<std::pair<int64_t, int64_t>> Degrees(const ShapeOptions& options) {
  std::vector<std::pair<int64_t, int64_t>> degrees;
  for (const int64_t ep : options.eps) {
    for (const int64_t tp : options.tps) degrees.emplace_back(ep, tp);
  }
  return degrees;
}

void AddExperts(const ModelSpec& model, int64_t ep, PwModel* shape) {
  shape->experts = static_cast<int32_t>(model.experts);
  shape->experts_per_token = static_cast<int32_t>(model.experts_per_token);
  shape->expert_ffn = model.expert_ffn_hidden;
  shape->shared_ffn = model.shared_ffn_hidden;
  shape->ep = static_cast<int32_t>(ep);
  shape->balanced = 1;
}

absl::StatusOr<Shape> ShapeOf(const ModelSpec& model, PwType type,
                              const ShapeOptions& options, int64_t ep,
                              int64_t tp, const PwWork& work) {
  Shape shape = {.work = work};
  shape.model = {.style = model.gated ? PW_LLAMA : PW_GPT,
                 .type = type,
                 .hidden = model.hidden,
                 .heads = model.heads,
                 .kv_heads = model.kv_heads,
                 .head_dim = model.HeadDim(),
                 .ffn = model.ffn_hidden,
                 .vocabulary = model.vocabulary,
                 .sequence = options.sequences.back(),
                 .causal = model.causal ? 1 : 0,
                 .tp = static_cast<int32_t>(tp),
                 .sequence_parallel = 0,
                 .epsilon = kEpsilon,
                 .rotary_base = kRotaryBase,
                 .fp8_linear = options.fp8 ? 1 : 0};
  if (model.has_experts()) AddExperts(model, ep, &shape.model);
  char reason[256] = "";
  if (pw_check_model(&shape.model, &shape.work, reason, sizeof(reason)) !=
      PW_OK) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name, ": ", reason));
  }
  return shape;
}

}  // namespace

absl::StatusOr<Grid> MakeGrid(const ModelSpec& model, PwType type,
                              const ShapeOptions& given) {
  PW_RETURN_IF_ERROR(CheckKernels(model));
  const ShapeOptions options = WithDefaults(model, given);
  // Limits that keep products of sizes far from overflow.
  PW_RETURN_IF_ERROR(
      CheckSizes("--microbatch-sizes", options.microbatch_sizes, 1 << 16));
  PW_RETURN_IF_ERROR(CheckSizes("--sequences", options.sequences, 1 << 24));
  PW_RETURN_IF_ERROR(CheckSizes("--tp", options.tps, 1 << 16));
  for (const auto& [size, slices] : options.sliced) {
    PW_RETURN_IF_ERROR(CheckSizes("--sliced", {size}, 1 << 16));
  }
  PW_RETURN_IF_ERROR(CheckExpertParallelism(model, options.eps));
  Grid grid;
  grid.type = type;
  PW_ASSIGN_OR_RETURN(grid.model, ProfileModelOf(model));
  grid.parts = PartsOf(model);
  grid.warnings = Differences(model);
  for (const auto& [ep, tp] : Degrees(options)) {
    if (!Divides(tp, model)) {
      return BadValue(
          "--tp", absl::StrCat(tp),
          absl::StrCat("divisors of heads (", model.heads, "), ffn (",
                       WidthsOf(model), ") and vocabulary (", model.vocabulary,
                       ") of ", model.name));
    }
    for (const int64_t sequence : options.sequences) {
      for (const int64_t size : options.microbatch_sizes) {
        PW_ASSIGN_OR_RETURN(const Shape shape,
                            ShapeOf(model, type, options, ep, tp,
                                    {.batch = size,
                                     .sequence = sequence,
                                     .slice_first = 0,
                                     .slice_tokens = sequence}));
        grid.shapes.push_back(shape);
      }
      for (const auto& [size, slices] : options.sliced) {
        if (slices < 2 || sequence % slices != 0) {
          return BadValue("--sliced", absl::StrCat(size, ":", slices),
                          absl::StrCat("2 slices and more that divide the ",
                                       sequence, " tokens of --sequences"));
        }
        const int64_t tokens = sequence / slices;
        PW_ASSIGN_OR_RETURN(const Shape shape,
                            ShapeOf(model, type, options, ep, tp,
                                    {.batch = size,
                                     .sequence = sequence,
                                     .slice_first = (sequence - tokens) / 2,
                                     .slice_tokens = tokens}));
        grid.sliced.push_back(shape);
      }
    }
  }
  return grid;
}

}  // namespace pipewright
