#include "sim/model/model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Sizes as double: the product of two sizes below 2^31 is above 2^53 only
// where no model is.
double Product(int64_t a, int64_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

double Real(int64_t size) { return static_cast<double>(size); }

absl::Status CheckSize(absl::string_view field, int64_t value) {
  return value >= 1 ? absl::OkStatus()
                    : BadValue(absl::StrCat("model.", field),
                               absl::StrCat(value), "an integer from 1 on");
}

struct Linear {
  int64_t inputs = 0;
  int64_t outputs = 0;
  bool bias = false;
  int64_t count = 1;
};

double LinearParameters(const Linear& linear, int64_t lora_rank) {
  const double weights = Product(linear.inputs, linear.outputs) +
                         (linear.bias ? Real(linear.outputs) : 0);
  const double lora = Product(lora_rank, linear.inputs + linear.outputs);
  return Real(linear.count) * (weights + lora);
}

std::vector<Linear> AttentionLinears(const ModelSpec& model) {
  const int64_t hidden = model.hidden;
  const int64_t queries = model.heads * model.QueryDim();
  const int64_t values = model.heads * model.ValueDim();
  if (!model.has_mla()) {
    const int64_t keys = model.kv_heads * model.HeadDim();
    return {{hidden, queries, model.qkv_bias},
            {hidden, keys, model.qkv_bias, 2},
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

void AddFeedForward(const ModelSpec& model, int64_t width, int64_t count,
                    std::vector<Linear>* linears) {
  const int64_t up = model.gated ? 2 : 1;
  linears->push_back({model.hidden, width, model.bias, up * count});
  linears->push_back({width, model.hidden, model.bias, count});
}

// Weight, and bias of a LayerNorm.
double NormParameters(const ModelSpec& model, int64_t width) {
  return (model.layer_norm ? 2 : 1) * Real(width);
}

// `experts`: so many of a layer's are counted.
double LayerParametersWith(const ModelSpec& model, int64_t layer,
                           int64_t experts) {
  std::vector<Linear> linears = AttentionLinears(model);
  double sum = 2 * NormParameters(model, model.hidden);
  if (model.qk_norm) sum += 2 * NormParameters(model, model.HeadDim());
  if (model.has_mla()) {
    sum += NormParameters(model, model.q_lora_rank + model.kv_lora_rank);
  }
  if (model.IsExpertLayer(layer)) {
    sum += Product(model.hidden, model.experts);  // the router
    AddFeedForward(model, model.expert_ffn_hidden, experts, &linears);
    if (model.shared_ffn_hidden > 0) {
      AddFeedForward(model, model.shared_ffn_hidden, 1, &linears);
    }
  } else {
    AddFeedForward(model, model.ffn_hidden, 1, &linears);
  }
  for (const Linear& linear : linears) {
    sum += LinearParameters(linear, model.lora_rank);
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
  PW_RETURN_IF_ERROR(CheckSize("layers", model.layers));
  PW_RETURN_IF_ERROR(CheckSize("hidden", model.hidden));
  PW_RETURN_IF_ERROR(CheckSize("heads", model.heads));
  PW_RETURN_IF_ERROR(CheckSize("kv_heads", model.kv_heads));
  PW_RETURN_IF_ERROR(CheckSize("ffn_hidden", model.ffn_hidden));
  PW_RETURN_IF_ERROR(CheckSize("vocabulary", model.vocabulary));
  PW_RETURN_IF_ERROR(CheckSize("sequence", model.sequence));
  if (model.hidden % model.heads != 0) {
    return BadValue("model.heads", absl::StrCat(model.heads),
                    absl::StrCat("a divisor of hidden (", model.hidden, ")"));
  }
  if (model.heads % model.kv_heads != 0) {
    return BadValue("model.kv_heads", absl::StrCat(model.kv_heads),
                    absl::StrCat("a divisor of heads (", model.heads, ")"));
  }
  return absl::OkStatus();
}

const std::vector<ModelSpec>& AllModels() {
  static const auto* models = new std::vector<ModelSpec>{
      {
          .name = "gpt-tiny",
          .source = "our own: runs anywhere in seconds (DESIGN section 4)",
          .layers = 16,
          .hidden = 256,
          .heads = 4,
          .kv_heads = 4,
          .ffn_hidden = 1024,
          .gated = false,
          .vocabulary = 512,
          .sequence = 128,
          .tied_embeddings = false,
      },
      {
          .name = "llama3-8b",
          .source = "The Llama 3 Herd of Models, arXiv 2407.21783, table 3; "
                    "sequence from section 3.4.1",
          .layers = 32,
          .hidden = 4096,
          .heads = 32,
          .kv_heads = 8,
          .ffn_hidden = 14336,
          .gated = true,
          .vocabulary = 128256,
          .sequence = 8192,
          .tied_embeddings = false,
      },
  };
  return *models;
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
