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
    return {{hidden, queries + 2 * keys, model.qkv_bias}};
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

// Norms around and within the attention and feed-forward parts.
double LayerNorms(const ModelSpec& model) {
  const int norms = (model.pre_norms ? 2 : 0) + (model.post_norms ? 2 : 0);
  double sum = norms * NormParameters(model, model.hidden);
  if (model.has_mla()) {
    return sum + NormParameters(model, model.q_lora_rank + model.kv_lora_rank);
  }
  if (!model.qk_norm || !model.qk_norm_weights) return sum;
  const int64_t heads = model.qk_norm_whole ? model.heads + model.kv_heads : 2;
  return sum + NormParameters(model, heads * model.HeadDim());
}

// `experts`: so many of a layer's are counted.
double ExpertPart(const ModelSpec& model, int64_t experts) {
  double sum = Product(model.hidden, model.experts);  // the router
  if (model.router_bias) sum += Real(model.experts);
  sum +=
      Real(experts) * SumOf(FeedForwardLinears(model, model.expert_ffn_hidden,
                                               model.expert_bias),
                            0);
  if (model.shared_ffn_hidden == 0) return sum;
  sum += SumOf(FeedForwardLinears(model, model.shared_ffn_hidden, model.bias),
               model.OtherLoraRank());
  return sum + (model.shared_gate ? Real(model.hidden) : 0);
}

double LayerParametersWith(const ModelSpec& model, bool has_experts,
                           int64_t experts) {
  const Linear projection = {
      model.heads * model.ValueDim(), model.hidden,
      !model.has_mla() && (model.bias || model.projection_bias)};
  const double sum = SumOf(QkvLinears(model), model.lora_rank) +
                     LinearParameters(projection, model.OtherLoraRank()) +
                     LayerNorms(model) +
                     (model.attention_sinks ? Real(model.heads) : 0);
  if (has_experts) return sum + ExpertPart(model, experts);
  return sum + SumOf(FeedForwardLinears(model, model.ffn_hidden, model.bias),
                     model.OtherLoraRank());
}

double AllLayersWith(const ModelSpec& model, int64_t experts) {
  const int64_t of_experts = model.ExpertLayers();
  double sum = 0;
  if (of_experts < model.layers) {
    sum += Real(model.layers - of_experts) *
           LayerParametersWith(model, false, experts);
  }
  if (of_experts > 0) {
    sum += Real(of_experts) * LayerParametersWith(model, true, experts);
  }
  return sum;
}

}  // namespace

int64_t ModelSpec::ExpertLayers() const {
  if (!has_experts() || first_dense_layers >= layers) return 0;
  const int64_t every = std::max<int64_t>(1, expert_layer_every);
  return (layers - first_dense_layers - 1) / every + 1;
}

double ModelSpec::LayerParameters(int64_t layer) const {
  return LayerParametersWith(*this, IsExpertLayer(layer), experts);
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
  return LayerParametersWith(*this, has_experts(), experts) +
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
  const Size sizes[] = {
      {"layers", model.layers, 1, kAny},
      {"hidden", model.hidden, 1, kAny},
      {"heads", model.heads, 1, kAny},
      {"kv_heads", model.kv_heads, 1, kAny},
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
