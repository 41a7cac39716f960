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

std::vector<Linear> AttentionLinears(const ModelSpec& model) {
  const int64_t hidden = model.hidden;
  const int64_t queries = model.heads * model.QueryDim();
  const int64_t values = model.heads * model.ValueDim();
  if (!model.has_mla()) {
    const int64_t keys = model.kv_heads * model.HeadDim();
    return {{hidden, queries + 2 * keys, model.qkv_bias},
            {values, hidden, model.bias}};
  }
  std::vector<Linear> linears = {
      {hidden, model.kv_lora_rank + model.qk_rope_head_dim},
      {model.kv_lora_rank,
       model.heads * (model.qk_nope_head_dim + model.v_head_dim)},
      {values, hidden}};
  if (model.q_lora_rank == 0) {
    linears.push_back({hidden, queries});
  } else {
    linears.push_back({hidden, model.q_lora_rank});
    linears.push_back({model.q_lora_rank, queries});
  }
  return linears;
}

std::vector<Linear> FeedForwardLinears(const ModelSpec& model, int64_t width) {
  return {{model.hidden, (model.gated ? 2 : 1) * width, model.bias},
          {width, model.hidden, model.bias}};
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

// `experts`: so many of a layer's are counted.
double LayerParametersWith(const ModelSpec& model, int64_t layer,
                           int64_t experts) {
  const int64_t rank = model.lora_rank;
  double sum = SumOf(AttentionLinears(model), rank) +
               2 * NormParameters(model, model.hidden);
  if (model.qk_norm) sum += 2 * NormParameters(model, model.HeadDim());
  if (model.has_mla()) {
    sum += NormParameters(model, model.q_lora_rank + model.kv_lora_rank);
  }
  if (model.IsExpertLayer(layer)) {
    sum += Product(model.hidden, model.experts);  // the router
    sum += Real(experts) *
           SumOf(FeedForwardLinears(model, model.expert_ffn_hidden), 0);
    if (model.shared_ffn_hidden > 0) {
      sum += SumOf(FeedForwardLinears(model, model.shared_ffn_hidden), rank);
    }
  } else {
    sum += SumOf(FeedForwardLinears(model, model.ffn_hidden), rank);
  }
  return sum;
}

double AllLayersWith(const ModelSpec& model, int64_t experts) {
  const int64_t dense = model.has_experts()
                            ? std::min(model.first_dense_layers, model.layers)
                            : model.layers;
  double sum = Real(dense) * LayerParametersWith(model, 0, experts);
  if (dense < model.layers) {
    sum += Real(model.layers - dense) *
           LayerParametersWith(model, model.layers - 1, experts);
  }
  return sum;
}

}  // namespace

double ModelSpec::LayerParameters(int64_t layer) const {
  return LayerParametersWith(*this, layer, experts);
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
  return LayerParameters(layers) +
         LinearParameters({2 * hidden, hidden}, lora_rank) +
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
      // A model of experts alone needs no dense width.
      {"ffn_hidden", model.ffn_hidden,
       model.has_experts() && model.first_dense_layers == 0 ? 0 : 1, kAny},
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
