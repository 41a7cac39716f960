#include "sim/model/model.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "sim/base/names.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Sizes as double: the product of two sizes below 2^31 is above 2^53 only
// where no model is.
double Product(int64_t a, int64_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

double Real(int64_t size) { return static_cast<double>(size); }

struct Linear {
  int64_t inputs = 0;
  int64_t outputs = 0;
  bool bias = false;
};

double LinearParameters(const Linear& linear, int64_t lora_rank) {
  const double weights = Product(linear.inputs, linear.outputs) +
                         (linear.bias ? Real(linear.outputs) : 0);
  const double lora = Product(lora_rank, linear.inputs + linear.outputs);
  return weights + lora;
}

// Those that make queries, keys and values.
std::vector<Linear> QkvLinears(const ModelSpec& model) {
  const int64_t hidden = model.hidden;
  const int64_t queries = model.heads * model.QueryDim();
  if (!model.has_mla()) {
    const int64_t keys = model.kv_heads * model.HeadDim();
    const int64_t gates = model.attention_gate ? queries : 0;
    return {{hidden, queries + gates + 2 * keys, model.qkv_bias}};
  }
  std::vector<Linear> linears = {
      {hidden, model.kv_lora_rank + model.qk_rope_head_dim},
      {model.kv_lora_rank,
       model.heads * (model.qk_nope_head_dim + model.v_head_dim)}};
  if (model.q_lora_rank == 0) {
    linears.push_back({hidden, queries});
  } else {
    linears.push_back({hidden, model.q_lora_rank});
    linears.push_back({model.q_lora_rank, queries});
  }
  return linears;
}

std::vector<Linear> FeedForwardLinears(const ModelSpec& model, int64_t width,
                                       bool bias) {
  return {{model.hidden, (model.gated ? 2 : 1) * width, bias},
          {width, model.hidden, bias}};
}

double SumOf(const std::vector<Linear>& linears, int64_t lora_rank) {
  double sum = 0;
  for (const Linear& linear : linears) {
    sum += LinearParameters(linear, lora_rank);
  }
  return sum;
}

// Weight, and bias of a LayerNorm.
double NormParameters(const ModelSpec& model, int64_t width) {
  return (model.layer_norm ? 2 : 1) * Real(width);
}

// Norms around one part of a layer.
double PartNorms(const ModelSpec& model) {
  const int norms = (model.pre_norms ? 1 : 0) + (model.post_norms ? 1 : 0);
  return norms * NormParameters(model, model.hidden);
}

double InnerNorms(const ModelSpec& model) {
  if (model.has_mla()) {
    return NormParameters(model, model.q_lora_rank + model.kv_lora_rank);
  }
  if (!model.qk_norm || !model.qk_norm_weights) return 0;
  const int64_t heads = model.qk_norm_whole ? model.heads + model.kv_heads : 2;
  return NormParameters(model, heads * model.HeadDim());
}

double AttentionPart(const ModelSpec& model) {
  const Linear projection = {
      model.heads * model.ValueDim(), model.hidden,
      !model.has_mla() && (model.bias || model.projection_bias)};
  return SumOf(QkvLinears(model), model.lora_rank) +
         LinearParameters(projection, model.OtherLoraRank()) +
         InnerNorms(model) + (model.attention_sinks ? Real(model.heads) : 0);
}

// Decay, skip and bias of the step of each head are numbers.
double MambaPart(const ModelSpec& model) {
  const int64_t width = model.MambaWidth();
  const int64_t convolved = model.MambaConvWidth();
  const Linear linears[] = {
      {model.hidden, width + convolved + model.mamba_heads, model.mamba_bias},
      {width, model.hidden, model.mamba_bias}};
  return SumOf({linears[0], linears[1]}, 0) +
         Product(convolved,
                 model.conv_kernel + (model.mamba_conv_bias ? 1 : 0)) +
         Real(3 * model.mamba_heads + width);
}

// Decay and bias of each value head are numbers; its norm is one for all heads.
double DeltaPart(const ModelSpec& model) {
  const int64_t keys = model.DeltaKeyWidth();
  const int64_t values = model.DeltaValueWidth();
  const int64_t heads = model.delta_value_heads;
  return Product(model.hidden, 2 * keys + 2 * values + 2 * heads) +
         Product(values, model.hidden) +
         Product(2 * keys + values, model.conv_kernel) +
         Real(2 * heads + model.delta_value_dim);
}

double MixerPart(const ModelSpec& model, Mixer mixer) {
  switch (mixer) {
    case Mixer::kAttention:
      return AttentionPart(model);
    case Mixer::kMamba:
      return MambaPart(model);
    case Mixer::kDelta:
      return DeltaPart(model);
    case Mixer::kNone:
      return 0;
  }
  return 0;
}

// `experts`: so many of a layer's are counted.
double ExpertPart(const ModelSpec& model, int64_t experts) {
  double sum = Product(model.hidden, model.experts);  // the router
  if (model.router_bias) sum += Real(model.experts);
  const int64_t inputs = model.ExpertInput();
  const int64_t width = model.expert_ffn_hidden;
  sum += Real(experts) *
         SumOf({{inputs, (model.gated ? 2 : 1) * width, model.expert_bias},
                {width, inputs, model.expert_bias}},
               0);
  if (model.expert_latent > 0) {
    sum += SumOf({{model.hidden, inputs, model.bias},
                  {inputs, model.hidden, model.bias}},
                 0);
  }
  if (model.shared_ffn_hidden == 0) return sum;
  sum += SumOf(FeedForwardLinears(model, model.shared_ffn_hidden, model.bias),
               model.OtherLoraRank());
  return sum + (model.shared_gate ? Real(model.hidden) : 0);
}

double LayerParametersWith(const ModelSpec& model, const LayerKind& kind,
                           int64_t experts) {
  const double sum =
      MixerPart(model, kind.mixer) + kind.parts() * PartNorms(model);
  switch (kind.feed_forward) {
    case FeedForward::kExperts:
      return sum + ExpertPart(model, experts);
    case FeedForward::kDense:
      return sum +
             SumOf(FeedForwardLinears(model, model.ffn_hidden, model.bias),
                   model.OtherLoraRank());
    case FeedForward::kNone:
      return sum;
  }
  return sum;
}

double AllLayersWith(const ModelSpec& model, int64_t experts) {
  double sum = 0;
  for (const LayerKind& kind : model.kinds) {
    sum += LayerParametersWith(model, kind, experts);
  }
  if (!model.kinds.empty()) return sum;
  const int64_t of_experts = model.ExpertLayers();
  if (of_experts < model.layers) {
    sum += Real(model.layers - of_experts) *
           LayerParametersWith(model, {}, experts);
  }
  if (of_experts > 0) {
    sum += Real(of_experts) *
           LayerParametersWith(
               model, {Mixer::kAttention, FeedForward::kExperts}, experts);
  }
  return sum;
}

}  // namespace

bool ModelSpec::Has(Mixer mixer) const {
  if (mixer == Mixer::kAttention && (kinds.empty() || mtp_layers > 0)) {
    return true;
  }
  return std::any_of(kinds.begin(), kinds.end(), [&](const LayerKind& kind) {
    return kind.mixer == mixer;
  });
}

int64_t ModelSpec::ExpertLayers() const {
  if (!kinds.empty()) {
    return std::count_if(kinds.begin(), kinds.end(), [](const LayerKind& kind) {
      return kind.feed_forward == FeedForward::kExperts;
    });
  }
  if (!has_experts() || first_dense_layers >= layers) return 0;
  const int64_t every = std::max<int64_t>(1, expert_layer_every);
  return (layers - first_dense_layers - 1) / every + 1;
}

bool ModelSpec::has_dense_layers() const {
  if (kinds.empty()) return ExpertLayers() < layers;
  return std::any_of(kinds.begin(), kinds.end(), [](const LayerKind& kind) {
    return kind.feed_forward == FeedForward::kDense;
  });
}

double ModelSpec::LayerParameters(int64_t layer) const {
  return LayerParametersWith(*this, KindOf(layer), experts);
}

double ModelSpec::EmbeddingParameters() const {
  return Product(vocabulary + positions + token_types, hidden) +
         (embedding_norm ? NormParameters(*this, hidden) : 0);
}

double ModelSpec::HeadParameters() const {
  double sum = final_norm ? NormParameters(*this, hidden) : 0;
  if (!tied_embeddings) sum += Product(vocabulary, hidden);
  if (pooler) sum += Product(hidden, hidden) + Real(hidden);
  if (masked_lm_head) {
    sum += Product(hidden, hidden) + Real(hidden) +
           NormParameters(*this, hidden) + Real(vocabulary);
  }
  return sum;
}

double ModelSpec::MtpLayerParameters() const {
  return LayerParametersWith(*this, KindOf(layers), experts) +
         LinearParameters({2 * hidden, hidden}, OtherLoraRank()) +
         3 * NormParameters(*this, hidden);
}

double ModelSpec::Parameters() const {
  return EmbeddingParameters() + AllLayersWith(*this, experts) +
         Real(mtp_layers) * MtpLayerParameters() + HeadParameters();
}

double ModelSpec::ActiveParameters() const {
  return EmbeddingParameters() + AllLayersWith(*this, experts_per_token) +
         HeadParameters();
}

namespace {

absl::Status CheckKinds(const ModelSpec& model) {
  if (model.kinds.empty()) return absl::OkStatus();
  if (static_cast<int64_t>(model.kinds.size()) != model.layers) {
    return BadValue("model.layers", absl::StrCat(model.layers),
                    absl::StrCat("the ", model.kinds.size(),
                                 " layers of model.pattern, or fewer"));
  }
  if (model.ExpertLayers() > 0 && !model.has_experts()) {
    return BadValue("model.experts", "0",
                    "an integer from 1 on, as model.pattern has experts");
  }
  if (model.lora_rank > 0 && model.has_scans()) {
    return BadValue("model.lora_rank", absl::StrCat(model.lora_rank),
                    "0 with Mamba or gated delta layers");
  }
  const auto divides = [](const char* field, int64_t value, const char* of,
                          int64_t whole) {
    if (whole % value == 0) return absl::OkStatus();
    return BadValue(absl::StrCat("model.", field), absl::StrCat(value),
                    absl::StrCat("a divisor of model.", of, " (", whole,
                                 "): ", NearestDivisors(whole, value)));
  };
  if (model.Has(Mixer::kMamba)) {
    PW_RETURN_IF_ERROR(divides("mamba_groups", model.mamba_groups,
                               "mamba_heads", model.mamba_heads));
  }
  if (!model.Has(Mixer::kDelta)) return absl::OkStatus();
  return divides("delta_key_heads", model.delta_key_heads, "delta_value_heads",
                 model.delta_value_heads);
}

}  // namespace

absl::Status CheckModel(const ModelSpec& model) {
  struct Size {
    const char* field;
    int64_t value;
    int64_t least;
    int64_t most;
  };
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  const int64_t from_experts = model.has_experts() ? 1 : 0;
  const int64_t from_mla = model.has_mla() ? 1 : 0;
  const int64_t from_heads = model.Has(Mixer::kAttention) ? 1 : 0;
  const int64_t from_mamba = model.Has(Mixer::kMamba) ? 1 : 0;
  const int64_t from_delta = model.Has(Mixer::kDelta) ? 1 : 0;
  const Size sizes[] = {
      {"layers", model.layers, 1, kAny},
      {"hidden", model.hidden, 1, kAny},
      {"heads", model.heads, from_heads, kAny},
      {"kv_heads", model.kv_heads, from_heads, kAny},
      {"head_dim", model.head_dim, 0, kAny},
      {"vocabulary", model.vocabulary, 1, kAny},
      {"sequence", model.sequence, 1, kAny},
      {"positions", model.positions, 0, kAny},
      {"token_types", model.token_types, 0, kAny},
      {"experts", model.experts, 0, kAny},
      {"experts_per_token", model.experts_per_token, from_experts,
       model.experts},
      {"expert_ffn_hidden", model.expert_ffn_hidden, from_experts, kAny},
      {"shared_ffn_hidden", model.shared_ffn_hidden, 0, kAny},
      {"first_dense_layers", model.first_dense_layers, 0, model.layers},
      {"expert_layer_every", model.expert_layer_every, 0, model.layers},
      {"q_lora_rank", model.q_lora_rank, 0, kAny},
      {"kv_lora_rank", model.kv_lora_rank, 0, kAny},
      {"qk_nope_head_dim", model.qk_nope_head_dim, from_mla, kAny},
      {"qk_rope_head_dim", model.qk_rope_head_dim, 0, kAny},
      {"v_head_dim", model.v_head_dim, from_mla, kAny},
      {"mtp_layers", model.mtp_layers, 0, kAny},
      {"frozen_layers", model.frozen_layers, 0, model.layers},
      {"lora_rank", model.lora_rank, 0, kAny},
      {"window", model.window, 0, kAny},
      {"full_attention_every", model.full_attention_every, 0, model.layers},
      {"full_attention_first", model.full_attention_first, 0, model.layers},
      {"expert_latent", model.expert_latent, 0, kAny},
      {"rotary_dim", model.rotary_dim, -1,
       model.has_mla() || model.heads == 0 ? kAny : model.HeadDim()},
      {"mamba_heads", model.mamba_heads, from_mamba, kAny},
      {"mamba_head_dim", model.mamba_head_dim, from_mamba, kAny},
      {"mamba_groups", model.mamba_groups, from_mamba, kAny},
      {"mamba_state", model.mamba_state, from_mamba, kAny},
      {"delta_key_heads", model.delta_key_heads, from_delta, kAny},
      {"delta_value_heads", model.delta_value_heads, from_delta, kAny},
      {"delta_key_dim", model.delta_key_dim, from_delta, kAny},
      {"delta_value_dim", model.delta_value_dim, from_delta, kAny},
      {"conv_kernel", model.conv_kernel, 1, kAny},
      {"scan_chunk", model.scan_chunk, 0, kAny},
      // A model of experts alone needs no dense width.
      {"ffn_hidden", model.ffn_hidden, model.has_dense_layers() ? 1 : 0, kAny},
  };
  for (const Size& size : sizes) {
    if (size.value >= size.least && size.value <= size.most) continue;
    return BadValue(
        absl::StrCat("model.", size.field), absl::StrCat(size.value),
        size.most == kAny
            ? absl::StrCat("an integer from ", size.least, " on")
            : absl::StrCat("an integer from ", size.least, " to ", size.most));
  }
  PW_RETURN_IF_ERROR(CheckKinds(model));
  if (model.has_mla() && model.attention_gate) {
    return BadValue("model.attention_gate", "true",
                    "false with latent attention (model.kv_lora_rank)");
  }
  if (from_heads == 0) return absl::OkStatus();
  if (model.head_dim == 0 && !model.has_mla() &&
      model.hidden % model.heads != 0) {
    return BadValue("model.heads", absl::StrCat(model.heads),
                    absl::StrCat("a divisor of hidden (", model.hidden, "): ",
                                 NearestDivisors(model.hidden, model.heads),
                                 "; or any number with model.head_dim"));
  }
  if (model.heads % model.kv_heads != 0) {
    return BadValue("model.kv_heads", absl::StrCat(model.kv_heads),
                    absl::StrCat("a divisor of heads (", model.heads, "): ",
                                 NearestDivisors(model.heads, model.kv_heads)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelSpec> FindModel(absl::string_view name) {
  std::vector<std::string> known;
  for (const ModelSpec& model : AllModels()) {
    if (model.name == name) return model;
    known.push_back(model.name);
  }
  return UnknownName("model", name, known);
}

}  // namespace pipewright
