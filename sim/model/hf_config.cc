// Source of keys and defaults: the configuration_*.py files of the
// transformers library, version 4.46.
#include "sim/model/hf_config.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/json_fault.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLargest = (int64_t{1} << 31) - 1;
// Value of SizeRow::fallback that says: the key must be there.
constexpr int64_t kNeeded = -1;

struct SizeRow {
  const char* key;
  int64_t ModelSpec::*field;
  const char* purpose;
  // Value if the key is missing or null.
  int64_t fallback = kNeeded;
};

// Keeps the first error.
class ConfigReader {
 public:
  ConfigReader(const Json& json, absl::string_view source)
      : json_(json), source_(source) {}

  const absl::Status& status() const { return status_; }

  bool Has(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && !found->is_null();
  }

  int64_t Size(const char* key, const char* purpose, int64_t fallback) {
    if (!Has(key)) {
      if (fallback == kNeeded) {
        Keep(InFile(
            source_, 0,
            FieldError(key, absl::StrCat("missing; needed for ", purpose))));
      }
      return fallback;
    }
    const Json& value = json_[key];
    const bool whole = value.is_number_integer() &&
                       (!value.is_number_unsigned() ||
                        value.get<uint64_t>() <= uint64_t{kLargest});
    const int64_t size = whole ? value.get<int64_t>() : -1;
    if (size < 0 || size > kLargest) {
      Wrong(key, absl::StrCat("an integer from 0 to ", kLargest));
      return 0;
    }
    return size;
  }

  bool Bool(const char* key, bool fallback) {
    if (!Has(key)) return fallback;
    if (json_[key].is_boolean()) return json_[key].get<bool>();
    Wrong(key, "true, false");
    return fallback;
  }

  // True for a number above 0.
  bool Positive(const char* key, bool fallback) {
    if (!Has(key)) return fallback;
    if (json_[key].is_number()) return json_[key].get<double>() > 0;
    Wrong(key, "a number");
    return fallback;
  }

  void Sizes(const std::vector<SizeRow>& rows, ModelSpec* model) {
    for (const SizeRow& row : rows) {
      model->*row.field = Size(row.key, row.purpose, row.fallback);
    }
  }

  // What this version cannot say in a ModelSpec must have its usual value.
  void Only(const char* key, const Json& usual) {
    if (Has(key) && json_[key] != usual) Wrong(key, usual.dump());
  }

 private:
  void Wrong(const char* key, absl::string_view allowed) {
    std::string value = json_[key].dump(
        -1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (value.size() > 40) value = absl::StrCat(value.substr(0, 40), "...");
    Keep(InFile(source_, 0, BadValue(key, value, allowed)));
  }
  void Keep(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  const Json& json_;
  absl::string_view source_;
  absl::Status status_;
};

const char* const kFfnPurpose = "the feed-forward width (model.ffn_hidden)";
const char* const kExpertsPurpose = "the number of experts (model.experts)";
const char* const kTopKPurpose =
    "the experts of a token (model.experts_per_token)";
const char* const kExpertFfnPurpose =
    "the width of an expert (model.expert_ffn_hidden)";

// Names that most architectures share.
void ReadCommon(ConfigReader& read, ModelSpec* model) {
  read.Sizes({{"num_hidden_layers", &ModelSpec::layers,
               "the number of layers (model.layers)"},
              {"hidden_size", &ModelSpec::hidden, "the width (model.hidden)"},
              {"num_attention_heads", &ModelSpec::heads,
               "the number of heads (model.heads)"},
              {"vocab_size", &ModelSpec::vocabulary,
               "the embedding and the output head (model.vocabulary)"},
              {"max_position_embeddings", &ModelSpec::sequence,
               "the longest sequence (model.sequence)"}},
             model);
}

void ReadLlama(ConfigReader& read, ModelSpec* model) {
  ReadCommon(read, model);
  read.Sizes({{"num_key_value_heads", &ModelSpec::kv_heads, "", model->heads},
              {"head_dim", &ModelSpec::head_dim, "", 0},
              {"intermediate_size", &ModelSpec::ffn_hidden, kFfnPurpose}},
             model);
  model->gated = true;
  model->tied_embeddings = read.Bool("tie_word_embeddings", false);
  model->qkv_bias = read.Bool("attention_bias", false);
  model->bias = model->qkv_bias && read.Bool("mlp_bias", false);
}

void ReadQwen2(ConfigReader& read, ModelSpec* model) {
  ReadLlama(read, model);
  model->qkv_bias = true;
}

void ReadQwen3(ConfigReader& read, ModelSpec* model) {
  ReadLlama(read, model);
  model->qk_norm = true;
  if (model->head_dim == 0) model->head_dim = 128;
}

void ReadQwen3Moe(ConfigReader& read, ModelSpec* model) {
  ReadQwen3(read, model);
  read.Sizes(
      {{"num_experts", &ModelSpec::experts, kExpertsPurpose},
       {"num_experts_per_tok", &ModelSpec::experts_per_token, kTopKPurpose},
       {"moe_intermediate_size", &ModelSpec::expert_ffn_hidden,
        kExpertFfnPurpose}},
      model);
  read.Only("decoder_sparse_step", 1);
  read.Only("mlp_only_layers", Json::array());
}

void ReadMixtral(ConfigReader& read, ModelSpec* model) {
  ReadLlama(read, model);
  read.Sizes(
      {{"num_local_experts", &ModelSpec::experts, kExpertsPurpose},
       {"num_experts_per_tok", &ModelSpec::experts_per_token, kTopKPurpose}},
      model);
  model->expert_ffn_hidden = model->ffn_hidden;
}

void ReadDeepSeek(ConfigReader& read, ModelSpec* model) {
  ReadLlama(read, model);
  model->kv_heads = model->heads;
  model->head_dim = 0;
  const char* latent = "latent attention";
  read.Sizes(
      {{"q_lora_rank", &ModelSpec::q_lora_rank, "", 0},
       {"kv_lora_rank", &ModelSpec::kv_lora_rank, latent},
       {"qk_nope_head_dim", &ModelSpec::qk_nope_head_dim, latent},
       {"qk_rope_head_dim", &ModelSpec::qk_rope_head_dim, latent},
       {"v_head_dim", &ModelSpec::v_head_dim, latent},
       {"n_routed_experts", &ModelSpec::experts, kExpertsPurpose},
       {"num_experts_per_tok", &ModelSpec::experts_per_token, kTopKPurpose},
       {"moe_intermediate_size", &ModelSpec::expert_ffn_hidden,
        kExpertFfnPurpose},
       {"first_k_dense_replace", &ModelSpec::first_dense_layers,
        "the layers before the first with experts "
        "(model.first_dense_layers)"},
       {"num_nextn_predict_layers", &ModelSpec::mtp_layers, "", 0}},
      model);
  model->shared_ffn_hidden =
      model->expert_ffn_hidden * read.Size("n_shared_experts", "", 0);
  read.Only("moe_layer_freq", 1);
}

// Blocks with LayerNorm, biases and two matrices.
void SetClassic(ModelSpec* model) {
  model->kv_heads = model->heads;
  model->layer_norm = model->qkv_bias = model->bias = true;
}

void ReadGpt2(ConfigReader& read, ModelSpec* model) {
  read.Sizes(
      {{"n_layer", &ModelSpec::layers, "the number of layers (model.layers)"},
       {"n_embd", &ModelSpec::hidden, "the width (model.hidden)"},
       {"n_head", &ModelSpec::heads, "the number of heads (model.heads)"},
       {"vocab_size", &ModelSpec::vocabulary,
        "the embedding and the output head (model.vocabulary)"},
       {"n_positions", &ModelSpec::sequence,
        "the longest sequence (model.sequence)"},
       {"n_inner", &ModelSpec::ffn_hidden, "", 0}},
      model);
  if (!read.Has("n_inner")) model->ffn_hidden = 4 * model->hidden;
  SetClassic(model);
  model->positions = model->sequence;
  model->tied_embeddings = read.Bool("tie_word_embeddings", true);
  model->dropout = read.Positive("resid_pdrop", true);
}

void ReadGptNeox(ConfigReader& read, ModelSpec* model) {
  ReadCommon(read, model);
  read.Sizes({{"intermediate_size", &ModelSpec::ffn_hidden, kFfnPurpose}},
             model);
  SetClassic(model);
  model->qkv_bias = read.Bool("attention_bias", true);
  model->tied_embeddings = read.Bool("tie_word_embeddings", false);
  model->dropout = read.Positive("hidden_dropout", false);
}

void ReadBert(ConfigReader& read, ModelSpec* model) {
  ReadCommon(read, model);
  read.Sizes({{"intermediate_size", &ModelSpec::ffn_hidden, kFfnPurpose},
              {"type_vocab_size", &ModelSpec::token_types, "", 2}},
             model);
  SetClassic(model);
  model->causal = false;
  model->final_norm = false;
  model->positions = model->sequence;
  model->embedding_norm = model->pooler = model->masked_lm_head = true;
  model->tied_embeddings = read.Bool("tie_word_embeddings", true);
  model->dropout = read.Positive("hidden_dropout_prob", true);
}

struct Architecture {
  const char* model_type;
  void (*read)(ConfigReader&, ModelSpec*);
};

constexpr Architecture kArchitectures[] = {
    {"bert", &ReadBert},
    {"deepseek_v2", &ReadDeepSeek},
    {"deepseek_v3", &ReadDeepSeek},
    {"gpt2", &ReadGpt2},
    {"gpt_neox", &ReadGptNeox},
    {"llama", &ReadLlama},
    {"mistral", &ReadLlama},
    {"mixtral", &ReadMixtral},
    {"qwen2", &ReadQwen2},
    {"qwen3", &ReadQwen3},
    {"qwen3_moe", &ReadQwen3Moe},
};

absl::Status TypeError(absl::string_view source, const Json& json) {
  const auto found = json.find("model_type");
  if (found == json.end() || !found->is_string()) {
    const std::string known = absl::StrJoin(HuggingFaceTypes(), ", ");
    return InFile(
        source, 0,
        WithValue(FieldError("model_type",
                             absl::StrCat("missing; needed for the kind of "
                                          "model; known: ",
                                          known)),
                  "", known));
  }
  return InFile(
      source, 0,
      InField("model_type", UnknownName("model type", found->get<std::string>(),
                                        HuggingFaceTypes())));
}

}  // namespace

std::vector<std::string> HuggingFaceTypes() {
  std::vector<std::string> types;
  for (const Architecture& architecture : kArchitectures) {
    types.push_back(architecture.model_type);
  }
  return types;
}

absl::StatusOr<ModelSpec> ModelFromHuggingFace(absl::string_view text,
                                               absl::string_view source_name) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded()) return JsonFault(text, source_name);
  if (!json.is_object()) {
    return InFile(source_name, 0,
                  WithValue(absl::InvalidArgumentError(
                                "not a JSON object; allowed: a Hugging Face "
                                "config.json"),
                            "", "a Hugging Face config.json"));
  }
  for (const Architecture& architecture : kArchitectures) {
    const auto type = json.find("model_type");
    if (type == json.end() || *type != architecture.model_type) continue;
    ModelSpec model;
    model.name = architecture.model_type;
    model.source = std::string(source_name);
    ConfigReader reader(json, source_name);
    architecture.read(reader, &model);
    PW_RETURN_IF_ERROR(reader.status());
    PW_RETURN_IF_ERROR(InFile(source_name, 0, CheckModel(model)));
    return model;
  }
  return TypeError(source_name, json);
}

}  // namespace pipewright
