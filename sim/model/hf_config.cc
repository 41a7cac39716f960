// Source of keys, defaults and rules: the configuration_*.py and modeling_*.py
// files of the transformers library, versions 4.46 to 4.57 and 008e57439125.
#include "sim/model/hf_config.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "sim/base/error_parts.h"
#include "sim/base/json_fault.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/model/layer_kinds.h"

namespace pipewright {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLargest = (int64_t{1} << 31) - 1;
// Value of SizeRow::fallback that says: the key must be there.
constexpr int64_t kNeeded = -1;
// Layers are looked at one by one.
constexpr int64_t kMostLayers = 100000;

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
  // `prefix` stands in front of keys in messages.
  ConfigReader(const Json& json, absl::string_view source, std::string prefix)
      : json_(json), source_(source), prefix_(std::move(prefix)) {}

  const absl::Status& status() const { return status_; }

  // Defaults of the type's own configuration, for keys that are left out.
  void SetDefaults(std::map<std::string, int64_t> defaults) {
    defaults_ = std::move(defaults);
  }
  // There, even if it is null.
  bool Says(const char* key) const { return json_.contains(key); }
  const Json& Get(const char* key) const { return json_[key]; }

  bool Has(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && !found->is_null();
  }

  int64_t Size(const char* key, const char* purpose, int64_t fallback) {
    if (!Has(key)) {
      const auto known = defaults_.find(key);
      if (known != defaults_.end() && !Says(key)) return known->second;
      if (fallback == kNeeded) Missing(key, purpose);
      return fallback;
    }
    const Json& value = OneOf(json_[key]);
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

  void Missing(const char* key, absl::string_view purpose) {
    Refuse(key, absl::StrCat("missing; needed for ", purpose));
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

  // What no field of a model says.
  void NoField(const char* key, absl::string_view part) {
    Refuse(key, absl::StrCat(Has(key) ? absl::StrCat(Text(key), ": ") : "",
                             part, " have no field in a model"));
  }

  void Wrong(const char* key, absl::string_view allowed) {
    Keep(InFile(source_, 0,
                BadValue(absl::StrCat(prefix_, key), Text(key), allowed)));
  }

 private:
  // A list of one number again and again says it once.
  static const Json& OneOf(const Json& value) {
    if (!value.is_array() || value.empty()) return value;
    for (const Json& entry : value) {
      if (entry != value[0]) return value;
    }
    return value[0];
  }
  std::string Text(const char* key) const {
    std::string value = json_[key].dump(
        -1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (value.size() > 40) value = absl::StrCat(value.substr(0, 40), "...");
    return value;
  }
  void Refuse(const char* key, const std::string& what) {
    Keep(InFile(source_, 0, FieldError(absl::StrCat(prefix_, key), what)));
  }
  void Keep(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  const Json& json_;
  absl::string_view source_;
  std::string prefix_;
  std::map<std::string, int64_t> defaults_;
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

using LayerRule = std::function<bool(int64_t layer)>;

bool FewLayers(ConfigReader& read, const ModelSpec& model) {
  if (model.layers <= kMostLayers) return true;
  read.Wrong("num_hidden_layers",
             absl::StrCat("an integer from 1 to ", kMostLayers));
  return false;
}

// full_attention_first and full_attention_every that say which layers look
// back on all. False: none do.
bool FitWindows(const std::vector<bool>& full, ModelSpec* model) {
  const auto layers = static_cast<int64_t>(full.size());
  const int64_t first =
      std::find(full.begin(), full.end(), false) - full.begin();
  for (const int64_t leading : {int64_t{0}, first}) {
    for (int64_t every = 0; every <= layers; ++every) {
      if (every == 1) continue;
      model->full_attention_first = leading;
      model->full_attention_every = every;
      bool fits = true;
      for (int64_t layer = 0; fits && layer < layers; ++layer) {
        fits = (model->WindowOf(layer) == 0) == full[layer];
      }
      if (fits) return true;
    }
  }
  return false;
}

// Layers that look back on all of `layer_types`, or those of the type's rule.
std::vector<bool> FullLayers(ConfigReader& read, const ModelSpec& model,
                             const LayerRule& is_full) {
  std::vector<bool> full;
  if (!read.Has("layer_types")) {
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      full.push_back(is_full(layer));
    }
    return full;
  }
  const Json& types = read.Get("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != model.layers) {
    read.Wrong("layer_types",
               absl::StrCat("a kind for each of ", model.layers, " layers"));
    return {};
  }
  for (const Json& type : types) {
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    if (name != "full_attention" && name != "sliding_attention" &&
        name != "chunked_attention") {
      read.NoField("layer_types",
                   absl::StrCat("layers of the kind '", name, "' (",
                                std::count(types.begin(), types.end(), type),
                                " of ", model.layers, ")"));
      return {};
    }
    full.push_back(name == "full_attention");
  }
  return full;
}

// The layers that look back on `key` tokens; `usual`: if the key is left out.
void ReadWindow(ConfigReader& read, const char* key, int64_t usual,
                const LayerRule& is_full, ModelSpec* model) {
  if (!FewLayers(read, *model)) return;
  const std::vector<bool> full = FullLayers(read, *model, is_full);
  const bool all = std::find(full.begin(), full.end(), false) == full.end();
  if (all) return;
  model->window = read.Says(key) ? read.Size(key, "", 0) : usual;
  if (model->window == 0 && read.Has("layer_types")) {
    read.Missing(key,
                 "the layers of layer_types that do not look back on all "
                 "(model.window)");
  }
  if (model->window == 0 || FitWindows(full, model)) return;
  read.NoField(read.Has("layer_types") ? "layer_types" : key,
               "layers with and without a window in this order");
}

LayerRule Never() {
  return [](int64_t) { return false; };
}
LayerRule Every(int64_t count) {
  return [=](int64_t layer) { return count > 0 && (layer + 1) % count == 0; };
}

// The layers with experts as first_dense_layers and expert_layer_every.
void FitExperts(ConfigReader& read, const char* key, const LayerRule& has,
                ModelSpec* model) {
  if (!FewLayers(read, *model)) return;
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < model->layers; ++layer) {
    if (has(layer)) layers.push_back(layer);
  }
  model->first_dense_layers = layers.empty() ? model->layers : layers[0];
  model->expert_layer_every = layers.size() > 1 ? layers[1] - layers[0] : 0;
  if (layers.size() == 1) model->expert_layer_every = model->layers;
  if (model->expert_layer_every == 1) model->expert_layer_every = 0;
  for (int64_t layer = 0; layer < model->layers; ++layer) {
    if (model->IsExpertLayer(layer) == has(layer)) continue;
    read.NoField(key, "layers with and without experts in this order");
    return;
  }
}

// Layers that a list of numbers names.
std::set<int64_t> LayersOf(ConfigReader& read, const char* key) {
  std::set<int64_t> layers;
  if (!read.Has(key)) return layers;
  const Json& list = read.Get(key);
  for (const Json& layer : list) {
    if (!list.is_array() || !layer.is_number_integer()) {
      read.Wrong(key, "a list of layers");
      break;
    }
    layers.insert(layer.get<int64_t>());
  }
  if (!list.is_array()) read.Wrong(key, "a list of layers");
  return layers;
}

void SetBiases(ConfigReader& read, bool qkv, bool projection, bool rest,
               ModelSpec* model) {
  model->qkv_bias = qkv;
  model->bias = rest && projection;
  model->projection_bias = projection && !rest;
  if (rest && !projection) {
    read.NoField("mlp_bias",
                 "biases of the feed-forward part without one behind "
                 "attention");
  }
}

// Without windows and experts.
void ReadBlock(ConfigReader& read, ModelSpec* model) {
  ReadCommon(read, model);
  read.Sizes({{"num_key_value_heads", &ModelSpec::kv_heads, "", model->heads},
              {"head_dim", &ModelSpec::head_dim, "", 0},
              {"intermediate_size", &ModelSpec::ffn_hidden, kFfnPurpose}},
             model);
  model->gated = true;
  model->tied_embeddings = read.Bool("tie_word_embeddings", false);
  const bool biases = read.Bool("attention_bias", false);
  SetBiases(read, biases, biases, read.Bool("mlp_bias", false), model);
}

void ReadLlama(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  // Other layer_types than full attention.
  ReadWindow(
      read, "sliding_window", 0, [](int64_t) { return true; }, model);
}

void ReadMistral(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  ReadWindow(read, "sliding_window", 4096, Never(), model);
}

// The window is left out unless the file asks for it by name.
void ReadPhi3(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  ReadWindow(read, "sliding_window", 0, Never(), model);
}

// Windows that use_sliding_window switches on.
void ReadQwenWindow(ConfigReader& read, const LayerRule& is_full,
                    ModelSpec* model) {
  const bool used = read.Bool("use_sliding_window", false);
  ReadWindow(
      read, "sliding_window", 4096,
      [&](int64_t layer) { return !used || is_full(layer); }, model);
}

LayerRule Below(int64_t layers) {
  return [=](int64_t layer) { return layer < layers; };
}

void ReadQwen2(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  SetBiases(read, true, false, false, model);
  ReadQwenWindow(read, Below(read.Size("max_window_layers", "", 28)), model);
}

void ReadQwen3Block(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  model->qk_norm = true;
  if (model->head_dim == 0) model->head_dim = 128;
}

void ReadQwen3(ConfigReader& read, ModelSpec* model) {
  ReadQwen3Block(read, model);
  ReadQwenWindow(read, Below(read.Size("max_window_layers", "", 28)), model);
}

void ReadExperts(ConfigReader& read, const char* experts, const char* width,
                 ModelSpec* model) {
  read.Sizes(
      {{experts, &ModelSpec::experts, kExpertsPurpose},
       {"num_experts_per_tok", &ModelSpec::experts_per_token, kTopKPurpose},
       {width, &ModelSpec::expert_ffn_hidden, kExpertFfnPurpose}},
      model);
}

// decoder_sparse_step and mlp_only_layers.
void ReadQwenExperts(ConfigReader& read, ModelSpec* model) {
  ReadExperts(read, "num_experts", "moe_intermediate_size", model);
  const int64_t step = read.Size("decoder_sparse_step", "", 1);
  if (step == 0) read.Wrong("decoder_sparse_step", "an integer from 1 on");
  const std::set<int64_t> dense = LayersOf(read, "mlp_only_layers");
  FitExperts(
      read, dense.empty() ? "decoder_sparse_step" : "mlp_only_layers",
      [&](int64_t layer) {
        return step > 0 && (layer + 1) % step == 0 && dense.count(layer) == 0;
      },
      model);
}

void ReadQwen2Moe(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  SetBiases(read, read.Bool("qkv_bias", true), false, false, model);
  ReadQwenExperts(read, model);
  model->shared_ffn_hidden =
      read.Size("shared_expert_intermediate_size", "", 5632);
  model->shared_gate = model->shared_ffn_hidden > 0;
  const int64_t most = read.Size("max_window_layers", "", 28);
  ReadQwenWindow(
      read,
      [=](int64_t layer) { return (layer + 1) % 2 == 0 || layer >= most; },
      model);
}

void ReadQwen3Moe(ConfigReader& read, ModelSpec* model) {
  ReadQwen3Block(read, model);
  ReadQwenExperts(read, model);
  ReadQwenWindow(read, Never(), model);
}

void ReadMixtral(ConfigReader& read, ModelSpec* model) {
  ReadPhi3(read, model);
  ReadExperts(read, "num_local_experts", "intermediate_size", model);
}

void ReadOlmoe(ConfigReader& read, ModelSpec* model) {
  ReadLlama(read, model);
  ReadExperts(read, "num_experts", "intermediate_size", model);
  model->qk_norm = model->qk_norm_whole = true;
}

void ReadMiniMaxM2(ConfigReader& read, ModelSpec* model) {
  ReadLlama(read, model);
  ReadExperts(read, "num_local_experts", "intermediate_size", model);
  model->qk_norm = read.Bool("use_qk_norm", true);
  model->qk_norm_whole = model->qk_norm;
}

void ReadGptOss(ConfigReader& read, ModelSpec* model) {
  read.SetDefaults({{"head_dim", 64}, {"num_key_value_heads", 8}});
  ReadBlock(read, model);
  const bool biases = read.Bool("attention_bias", true);
  SetBiases(read, biases, biases, false, model);
  ReadExperts(read, "num_local_experts", "intermediate_size", model);
  model->attention_sinks = model->router_bias = model->expert_bias = true;
  ReadWindow(read, "sliding_window", 128, Every(2), model);
}

void ReadGemma(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  if (model->head_dim == 0) model->head_dim = 256;
  model->tied_embeddings = read.Bool("tie_word_embeddings", true);
}

void ReadGemma2(ConfigReader& read, ModelSpec* model) {
  read.SetDefaults({{"num_attention_heads", 8}, {"num_key_value_heads", 4}});
  ReadGemma(read, model);
  model->post_norms = true;
  ReadWindow(read, "sliding_window", 4096, Every(2), model);
}

void ReadGemma3(ConfigReader& read, ModelSpec* model) {
  read.SetDefaults({{"vocab_size", 262208},
                    {"hidden_size", 2304},
                    {"intermediate_size", 9216},
                    {"num_hidden_layers", 26},
                    {"num_attention_heads", 8},
                    {"num_key_value_heads", 4},
                    {"max_position_embeddings", 131072}});
  ReadGemma(read, model);
  model->post_norms = model->qk_norm = true;
  const char* const pattern = read.Has("_sliding_window_pattern")
                                  ? "_sliding_window_pattern"
                                  : "sliding_window_pattern";
  ReadWindow(read, "sliding_window", 4096, Every(read.Size(pattern, "", 6)),
             model);
}

// Biases of queries, keys and values alone.
void ReadGlm(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  SetBiases(read, model->qkv_bias, false, false, model);
  ReadWindow(
      read, "sliding_window", 0, [](int64_t) { return true; }, model);
}

void ReadGlm4(ConfigReader& read, ModelSpec* model) {
  ReadGlm(read, model);
  model->post_norms = true;
}

// Experts as DeepSeek names them. The biases by which routers are corrected
// are no parameters: no gradient reaches them.
void ReadDeepSeekExperts(ConfigReader& read, ModelSpec* model) {
  ReadExperts(read, "n_routed_experts", "moe_intermediate_size", model);
  read.Sizes({{"num_nextn_predict_layers", &ModelSpec::mtp_layers, "", 0}},
             model);
  model->shared_ffn_hidden =
      model->expert_ffn_hidden * read.Size("n_shared_experts", "", 0);
  const int64_t first = read.Size(
      "first_k_dense_replace",
      "the layers before the first with experts (model.first_dense_layers)",
      kNeeded);
  const int64_t every = read.Size("moe_layer_freq", "", 1);
  if (every == 0) read.Wrong("moe_layer_freq", "an integer from 1 on");
  FitExperts(
      read, "moe_layer_freq",
      [&](int64_t layer) {
        return layer >= first && every > 0 && layer % every == 0;
      },
      model);
}

void ReadGlm4Moe(ConfigReader& read, ModelSpec* model) {
  ReadGlm(read, model);
  model->qk_norm = read.Bool("use_qk_norm", false);
  read.SetDefaults({{"first_k_dense_replace", 1}, {"n_shared_experts", 1}});
  ReadDeepSeekExperts(read, model);
}

void ReadDots1(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  model->qk_norm = true;
  read.SetDefaults({{"first_k_dense_replace", 0}});
  ReadDeepSeekExperts(read, model);
  ReadWindow(read, "sliding_window", 4096,
             Below(read.Size("max_window_layers", "", model->layers)), model);
}

void ReadDeepSeek(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  read.Only("attention_bias", false);
  SetBiases(read, false, false, false, model);
  model->kv_heads = model->heads;
  model->head_dim = 0;
  const char* latent = "latent attention";
  read.Sizes({{"q_lora_rank", &ModelSpec::q_lora_rank, "", 0},
              {"kv_lora_rank", &ModelSpec::kv_lora_rank, latent},
              {"qk_nope_head_dim", &ModelSpec::qk_nope_head_dim, latent},
              {"qk_rope_head_dim", &ModelSpec::qk_rope_head_dim, latent},
              {"v_head_dim", &ModelSpec::v_head_dim, latent}},
             model);
  ReadDeepSeekExperts(read, model);
}

void ReadLlama4(ConfigReader& read, ModelSpec* model) {
  read.SetDefaults({{"num_attention_heads", 40},
                    {"num_key_value_heads", 8},
                    {"head_dim", 128},
                    {"vocab_size", 202048},
                    {"num_local_experts", 16},
                    {"num_experts_per_tok", 1},
                    {"intermediate_size_mlp", 16384}});
  ReadBlock(read, model);
  ReadExperts(read, "num_local_experts", "intermediate_size", model);
  model->shared_ffn_hidden = model->expert_ffn_hidden;
  model->ffn_hidden = read.Size("intermediate_size_mlp", kFfnPurpose, kNeeded);
  model->qk_norm = read.Bool("use_qk_norm", true);
  model->qk_norm_weights = !model->qk_norm;
  const int64_t step = read.Size("interleave_moe_layer_step", "", 1);
  const std::set<int64_t> listed = LayersOf(read, "moe_layers");
  const bool lists = read.Has("moe_layers");
  FitExperts(
      read, lists ? "moe_layers" : "interleave_moe_layer_step",
      [&](int64_t layer) {
        if (lists) return listed.count(layer) > 0;
        return step > 0 && (layer + 1) % step == 0;
      },
      model);
  // 1: with rotary embedding, and in chunks.
  const Json none;
  const Json& rope =
      read.Has("no_rope_layers") ? read.Get("no_rope_layers") : none;
  const int64_t interval = read.Size("no_rope_layer_interval", "", 4);
  ReadWindow(
      read, "attention_chunk_size", 8192,
      [&](int64_t layer) {
        const auto at = static_cast<size_t>(layer);
        if (rope.is_array() && !rope.empty()) {
          return at < rope.size() && rope[at] == 0;
        }
        return Every(interval)(layer);
      },
      model);
  model->chunked_window = model->window > 0;
}

void ReadOlmo2(ConfigReader& read, ModelSpec* model) {
  ReadLlama(read, model);
  model->qk_norm = model->qk_norm_whole = true;
  model->pre_norms = false;
  model->post_norms = true;
}

void ReadOlmo3(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  model->qk_norm = model->qk_norm_whole = true;
  model->pre_norms = false;
  model->post_norms = true;
  ReadWindow(read, "sliding_window", 4096, Every(4), model);
}

void ReadSeedOss(ConfigReader& read, ModelSpec* model) {
  read.SetDefaults({{"head_dim", 128}});
  ReadLlama(read, model);
  SetBiases(read, read.Bool("attention_bias", true),
            read.Bool("attention_out_bias", false),
            read.Bool("mlp_bias", false), model);
  model->dropout = read.Positive("residual_dropout", true);
}

void ReadSmolLm3(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  model->tied_embeddings = read.Bool("tie_word_embeddings", true);
  read.Only("use_sliding_window", false);
}

void ReadErnie(ConfigReader& read, ModelSpec* model) {
  ReadLlama(read, model);
  model->tied_embeddings = read.Bool("tie_word_embeddings", true);
  const bool biases = read.Bool("use_bias", false);
  SetBiases(read, biases, biases, biases, model);
}

void ReadErnieMoe(ConfigReader& read, ModelSpec* model) {
  ReadErnie(read, model);
  read.SetDefaults({{"moe_k", 6}, {"moe_num_shared_experts", 2}});
  read.Sizes({{"moe_num_experts", &ModelSpec::experts, kExpertsPurpose},
              {"moe_k", &ModelSpec::experts_per_token, kTopKPurpose},
              {"moe_intermediate_size", &ModelSpec::expert_ffn_hidden,
               kExpertFfnPurpose}},
             model);
  model->shared_ffn_hidden =
      model->expert_ffn_hidden * read.Size("moe_num_shared_experts", "", 2);
  model->expert_bias = model->bias;
  const int64_t first = read.Size("moe_layer_start_index", "", 1);
  const bool to_end =
      read.Has("moe_layer_end_index") && read.Get("moe_layer_end_index") == -1;
  const int64_t last =
      to_end ? model->layers - 1
             : read.Size("moe_layer_end_index", "", model->layers - 1);
  const int64_t step = read.Size("moe_layer_interval", "", 1);
  if (step == 0) read.Wrong("moe_layer_interval", "an integer from 1 on");
  FitExperts(
      read, "moe_layer_interval",
      [&](int64_t layer) {
        return layer >= first && layer <= last && step > 0 &&
               (layer + 1) % step == 0;
      },
      model);
}

void ReadHunyuan(ConfigReader& read, ModelSpec* model) {
  ReadLlama(read, model);
  model->qk_norm = read.Bool("use_qk_norm", true);
}

void ReadHunyuanMoe(ConfigReader& read, ModelSpec* model) {
  ReadHunyuan(read, model);
  read.Sizes({{"num_experts", &ModelSpec::experts, kExpertsPurpose},
              {"moe_topk", &ModelSpec::experts_per_token, kTopKPurpose},
              {"moe_intermediate_size", &ModelSpec::expert_ffn_hidden, "",
               model->ffn_hidden}},
             model);
  model->shared_ffn_hidden =
      model->ffn_hidden * read.Size("num_shared_expert", "", 1);
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

void ReadStarcoder2(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  model->gated = false;
  model->layer_norm = true;
  const bool biases = read.Bool("use_bias", true);
  SetBiases(read, biases, biases, biases, model);
  model->tied_embeddings = read.Bool("tie_word_embeddings", true);
  model->dropout = read.Positive("residual_dropout", false);
  ReadWindow(read, "sliding_window", 0, Never(), model);
}

// Layers of several kinds: states and steps by name, the kinds by list or rule.

// A word of layer_types or layers_block_type; "mamba" also where the type calls
// that linear attention.
struct KindWord {
  const char* word;
  char letter;
};
constexpr KindWord kNemotronWords[] = {
    {"mamba", 'M'},     {"linear_attention", 'M'},
    {"attention", '*'}, {"full_attention", '*'},
    {"mlp", '-'},       {"moe", 'E'}};
constexpr KindWord kMambaWords[] = {{"mamba", 'M'},
                                    {"linear_attention", 'M'},
                                    {"attention", '*'},
                                    {"full_attention", '*'}};
constexpr KindWord kDeltaWords[] = {{"linear_attention", 'G'},
                                    {"full_attention", '*'}};

// One letter a layer of the list `key`.
std::string LettersOfList(ConfigReader& read, const char* key,
                          absl::Span<const KindWord> words) {
  std::string letters;
  const Json& list = read.Get(key);
  if (!list.is_array()) read.Wrong(key, "a list of kinds of layers");
  for (const Json& entry : list) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : "";
    const auto* const found =
        std::find_if(words.begin(), words.end(),
                     [&](const KindWord& word) { return name == word.word; });
    if (found == words.end()) {
      read.NoField(
          key, absl::StrCat("layers of the kind '", name, "' (",
                            std::count(list.begin(), list.end(), entry), " of ",
                            list.size(), ")"));
      return "";
    }
    letters += found->letter;
  }
  return letters;
}

void TakeLetters(ConfigReader& read, const char* key,
                 const std::string& letters, ModelSpec* model) {
  if (!read.status().ok()) return;
  absl::StatusOr<std::vector<LayerKind>> kinds = LayerKindsOf(letters, false);
  if (!kinds.ok()) {
    read.Wrong(key, "the letters M, *, - and E, one a layer");
    return;
  }
  model->kinds = *std::move(kinds);
  if (read.Has("num_hidden_layers") &&
      model->layers != static_cast<int64_t>(model->kinds.size())) {
    read.Wrong("num_hidden_layers",
               absl::StrCat("the ", model->kinds.size(), " layers of ", key));
  }
  model->layers = static_cast<int64_t>(model->kinds.size());
}

// Each layer has a mixer of `letters` and a feed-forward part.
void TakeMixers(ConfigReader& read, const char* key, const std::string& letters,
                ModelSpec* model) {
  std::string pairs;
  for (size_t layer = 0; layer < letters.size(); ++layer) {
    const bool experts = model->IsExpertLayer(static_cast<int64_t>(layer));
    absl::StrAppend(&pairs, "(", letters.substr(layer, 1),
                    experts ? "E)" : "-)");
  }
  TakeLetters(read, key, pairs, model);
}

// As Bamba and Granite 4 name them. The width follows from the model's.
void ReadMambaSizes(ConfigReader& read, ModelSpec* model) {
  read.SetDefaults({{"mamba_n_heads", 128},
                    {"mamba_n_groups", 1},
                    {"mamba_d_state", 256},
                    {"mamba_d_conv", 4},
                    {"mamba_expand", 2},
                    {"mamba_chunk_size", 256}});
  const char* const purpose = "Mamba layers";
  read.Sizes({{"mamba_n_heads", &ModelSpec::mamba_heads, purpose},
              {"mamba_n_groups", &ModelSpec::mamba_groups, purpose},
              {"mamba_d_state", &ModelSpec::mamba_state, purpose},
              {"mamba_d_conv", &ModelSpec::conv_kernel, purpose},
              {"mamba_chunk_size", &ModelSpec::scan_chunk, purpose}},
             model);
  const int64_t width =
      read.Size("mamba_expand", purpose, kNeeded) * model->hidden;
  const int64_t heads = std::max<int64_t>(1, model->mamba_heads);
  const bool is_auto =
      !read.Has("mamba_d_head") || read.Get("mamba_d_head") == "auto";
  model->mamba_head_dim =
      is_auto ? width / heads : read.Size("mamba_d_head", purpose, kNeeded);
  if (model->mamba_head_dim * heads != width) {
    read.Wrong(
        is_auto ? "mamba_n_heads" : "mamba_d_head",
        absl::StrCat("heads that make mamba_expand * hidden_size = ", width));
  }
  model->mamba_bias = read.Bool("mamba_proj_bias", false);
  model->mamba_conv_bias = read.Bool("mamba_conv_bias", true);
}

void ReadBamba(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  ReadMambaSizes(read, model);
  // Hard-coded there.
  SetBiases(read, false, false, false, model);
  model->rotary_dim = model->HeadDim() / 2;
  if (!FewLayers(read, *model)) return;
  const std::set<int64_t> attention = LayersOf(read, "attn_layer_indices");
  std::string letters;
  for (int64_t layer = 0; layer < model->layers; ++layer) {
    letters += attention.count(layer) > 0 ? '*' : 'M';
  }
  TakeMixers(read, "attn_layer_indices", letters, model);
}

// Without experts the shared part alone is the feed-forward part.
void ReadGraniteHybrid(ConfigReader& read, ModelSpec* model) {
  ReadBlock(read, model);
  ReadMambaSizes(read, model);
  const bool biases = read.Bool("attention_bias", false);
  SetBiases(read, biases, biases, false, model);
  const std::string positions =
      read.Has("position_embedding_type") &&
              read.Get("position_embedding_type").is_string()
          ? read.Get("position_embedding_type").get<std::string>()
          : "";
  if (positions != "rope") model->rotary_dim = 0;
  const int64_t shared = read.Size("shared_intermediate_size", "", 1024);
  read.Sizes({{"num_local_experts", &ModelSpec::experts, "", 8}}, model);
  if (model->experts > 0) {
    ReadExperts(read, "num_local_experts", "intermediate_size", model);
    model->shared_ffn_hidden = shared;
  } else {
    model->ffn_hidden = shared;
  }
  if (!FewLayers(read, *model)) return;
  const char* const key =
      read.Has("layers_block_type") ? "layers_block_type" : "layer_types";
  TakeMixers(read, key,
             read.Has(key) ? LettersOfList(read, key, kMambaWords)
                           : std::string(model->layers, 'M'),
             model);
}

// The state-space model alone.
void ReadMamba2(ConfigReader& read, ModelSpec* model) {
  read.SetDefaults({{"num_heads", 128},
                    {"head_dim", 64},
                    {"n_groups", 8},
                    {"state_size", 128},
                    {"conv_kernel", 4},
                    {"chunk_size", 256},
                    {"expand", 2}});
  const char* const purpose = "Mamba layers";
  read.Sizes({{"num_hidden_layers", &ModelSpec::layers,
               "the number of layers (model.layers)"},
              {"hidden_size", &ModelSpec::hidden, "the width (model.hidden)"},
              {"vocab_size", &ModelSpec::vocabulary,
               "the embedding and the output head (model.vocabulary)"},
              {"num_heads", &ModelSpec::mamba_heads, purpose},
              {"head_dim", &ModelSpec::mamba_head_dim, purpose},
              {"n_groups", &ModelSpec::mamba_groups, purpose},
              {"state_size", &ModelSpec::mamba_state, purpose},
              {"conv_kernel", &ModelSpec::conv_kernel, purpose},
              {"chunk_size", &ModelSpec::scan_chunk, purpose},
              // Longest samples that it was trained on (arXiv 2405.21060).
              {"max_position_embeddings", &ModelSpec::sequence, "", 2048}},
             model);
  const int64_t width = read.Size("expand", purpose, kNeeded) * model->hidden;
  if (model->MambaWidth() != width) {
    read.Wrong("num_heads",
               absl::StrCat("heads that make expand * hidden_size = ", width));
  }
  read.Only("rms_norm", true);
  model->mamba_bias = read.Bool("use_bias", false);
  model->mamba_conv_bias = read.Bool("use_conv_bias", true);
  model->tied_embeddings = read.Bool("tie_word_embeddings", false);
  if (!FewLayers(read, *model)) return;
  TakeLetters(read, "num_hidden_layers", std::string(model->layers, 'M'),
              model);
}

// Multi-token prediction is attention and experts, as elsewhere.
void ReadNemotronPrediction(ConfigReader& read, ModelSpec* model) {
  read.Sizes({{"num_nextn_predict_layers", &ModelSpec::mtp_layers, "", 0}},
             model);
  if (model->mtp_layers == 0) return;
  const bool listed = read.Has("mtp_layers_block_type");
  const char* const key =
      listed ? "mtp_layers_block_type" : "mtp_hybrid_override_pattern";
  std::string letters = "*E";
  if (listed) {
    letters = LettersOfList(read, key, kNemotronWords);
  } else if (read.Has(key)) {
    letters = read.Get(key).is_string() ? read.Get(key).get<std::string>() : "";
  }
  if (letters != (model->has_experts() ? "*E" : "*-")) {
    read.NoField(key,
                 "layers of multi-token prediction other than attention and "
                 "the feed-forward part of the model");
  }
}

void ReadNemotronH(ConfigReader& read, ModelSpec* model) {
  const bool listed = read.Has("layers_block_type");
  const char* const key = listed                    ? "layers_block_type"
                          : read.Has("layer_types") ? "layer_types"
                                                    : "hybrid_override_pattern";
  if (!read.Has(key)) {
    read.Missing(key, "the kinds of the layers (model.pattern)");
    return;
  }
  const bool is_text = read.Get(key).is_string();
  const std::string letters = is_text
                                  ? read.Get(key).get<std::string>()
                                  : LettersOfList(read, key, kNemotronWords);
  if (letters.find_first_not_of("M*-E") != std::string::npos) {
    read.Wrong(key, "the letters M, *, - and E, one a layer");
  }
  read.SetDefaults({{"num_hidden_layers", static_cast<int64_t>(letters.size())},
                    {"ssm_state_size", 128},
                    {"mamba_num_heads", 128},
                    {"mamba_head_dim", 64},
                    {"n_groups", 8},
                    {"conv_kernel", 4},
                    {"chunk_size", 128},
                    {"max_position_embeddings", 4096}});
  ReadCommon(read, model);
  const char* const purpose = "Mamba layers";
  read.Sizes({{"num_key_value_heads", &ModelSpec::kv_heads, "", model->heads},
              {"head_dim", &ModelSpec::head_dim, "",
               read.Size("attention_head_dim", "", 128)},
              {"intermediate_size", &ModelSpec::ffn_hidden, "", 0},
              {"mamba_num_heads", &ModelSpec::mamba_heads, purpose},
              {"mamba_head_dim", &ModelSpec::mamba_head_dim, purpose},
              {"n_groups", &ModelSpec::mamba_groups, purpose},
              {"ssm_state_size", &ModelSpec::mamba_state, purpose},
              {"conv_kernel", &ModelSpec::conv_kernel, purpose},
              {"chunk_size", &ModelSpec::scan_chunk, purpose}},
             model);
  model->rotary_dim = 0;
  model->tied_embeddings = read.Bool("tie_word_embeddings", false);
  const bool biases = read.Bool("attention_bias", false);
  SetBiases(read, biases, biases, read.Bool("mlp_bias", false), model);
  model->mamba_bias =
      read.Bool("use_bias", read.Bool("mamba_proj_bias", false));
  model->mamba_conv_bias = read.Bool("use_conv_bias", true);
  model->window = read.Size("sliding_window", "", 0);
  if (letters.find('E') != std::string::npos) {
    ReadExperts(read, "n_routed_experts", "moe_intermediate_size", model);
    model->shared_ffn_hidden =
        read.Size("n_shared_experts", "", 1) == 0
            ? 0
            : read.Size("moe_shared_expert_intermediate_size",
                        "the width of the shared expert "
                        "(model.shared_ffn_hidden)",
                        kNeeded);
    read.Sizes({{"moe_latent_size", &ModelSpec::expert_latent, "", 0}}, model);
  }
  ReadNemotronPrediction(read, model);
  TakeLetters(read, key, letters, model);
}

// Mixers of layer_types, else of full_attention_interval; one norm of queries
// and keys, a gate behind attention, a quarter of a head is turned.
void ReadGatedDelta(ConfigReader& read, ModelSpec* model) {
  const char* const purpose = "gated delta layers";
  read.Sizes(
      {{"linear_conv_kernel_dim", &ModelSpec::conv_kernel, purpose, 4},
       {"linear_key_head_dim", &ModelSpec::delta_key_dim, purpose, 128},
       {"linear_value_head_dim", &ModelSpec::delta_value_dim, purpose, 128},
       {"linear_num_key_heads", &ModelSpec::delta_key_heads, purpose, 16},
       {"linear_num_value_heads", &ModelSpec::delta_value_heads, purpose, 32}},
      model);
  model->qk_norm = true;
  read.Only("attn_output_gate", true);
  model->attention_gate = true;
  model->rotary_dim = model->HeadDim() / 4;
  if (!FewLayers(read, *model)) return;
  const bool listed = read.Has("layer_types");
  const int64_t every = read.Size("full_attention_interval", "", 4);
  if (every == 0) read.Wrong("full_attention_interval", "an integer from 1 on");
  std::string letters;
  if (listed) letters = LettersOfList(read, "layer_types", kDeltaWords);
  for (int64_t layer = 0; !listed && layer < model->layers; ++layer) {
    letters += Every(every)(layer) ? '*' : 'G';
  }
  TakeMixers(read, listed ? "layer_types" : "full_attention_interval", letters,
             model);
}

void ReadQwen3Next(ConfigReader& read, ModelSpec* model) {
  read.SetDefaults({{"head_dim", 256}});
  ReadBlock(read, model);
  ReadQwenExperts(read, model);
  model->shared_ffn_hidden =
      read.Size("shared_expert_intermediate_size", "", 512);
  model->shared_gate = model->shared_ffn_hidden > 0;
  ReadGatedDelta(read, model);
}

// Multi-token prediction is in their files, behind another key.
void ReadQwen35(ConfigReader& read, ModelSpec* model) {
  read.SetDefaults({{"head_dim", 256}});
  ReadBlock(read, model);
  read.Sizes({{"mtp_num_hidden_layers", &ModelSpec::mtp_layers, "", 0}}, model);
  ReadGatedDelta(read, model);
}

void ReadQwen35Moe(ConfigReader& read, ModelSpec* model) {
  read.SetDefaults({{"head_dim", 256}, {"intermediate_size", 0}});
  ReadBlock(read, model);
  ReadExperts(read, "num_experts", "moe_intermediate_size", model);
  model->shared_ffn_hidden =
      read.Size("shared_expert_intermediate_size", "", 512);
  model->shared_gate = model->shared_ffn_hidden > 0;
  read.Sizes({{"mtp_num_hidden_layers", &ModelSpec::mtp_layers, "", 0}}, model);
  ReadGatedDelta(read, model);
}

struct Architecture {
  const char* model_type;
  void (*read)(ConfigReader&, ModelSpec*);
  // Keys of kKeys that it reads.
  std::vector<absl::string_view> own = {};
};

const std::vector<Architecture>& Architectures() {
  static const auto* const all = new std::vector<Architecture>{
      {"bamba", &ReadBamba, {"mamba_d_state"}},
      {"bert", &ReadBert},
      {"deepseek_v2", &ReadDeepSeek},
      {"deepseek_v3", &ReadDeepSeek},
      {"dots1", &ReadDots1},
      {"ernie4_5", &ReadErnie},
      {"ernie4_5_moe", &ReadErnieMoe},
      {"gemma", &ReadGemma},
      {"gemma2", &ReadGemma2},
      {"gemma3", &ReadGemma3},
      {"gemma3_text", &ReadGemma3},
      {"glm", &ReadGlm},
      {"glm4", &ReadGlm4},
      {"glm4_moe", &ReadGlm4Moe},
      {"gpt2", &ReadGpt2},
      {"gpt_neox", &ReadGptNeox},
      {"gpt_oss", &ReadGptOss},
      {"granite", &ReadLlama},
      {"granitemoe", &ReadMixtral},
      {"granitemoehybrid", &ReadGraniteHybrid, {"mamba_d_state"}},
      {"hunyuan_v1_dense", &ReadHunyuan},
      {"hunyuan_v1_moe", &ReadHunyuanMoe},
      {"kimi_k2", &ReadDeepSeek},
      {"llama", &ReadLlama},
      {"llama4", &ReadLlama4},
      {"llama4_text", &ReadLlama4},
      {"mamba2", &ReadMamba2},
      {"minimax_m2", &ReadMiniMaxM2},
      {"mistral", &ReadMistral},
      {"mixtral", &ReadMixtral},
      {"nemotron_h", &ReadNemotronH, {"ssm_state_size", "moe_latent_size"}},
      {"olmo2", &ReadOlmo2},
      {"olmo3", &ReadOlmo3},
      {"olmoe", &ReadOlmoe},
      {"phi3", &ReadPhi3},
      {"qwen2", &ReadQwen2},
      {"qwen2_moe", &ReadQwen2Moe},
      {"qwen3", &ReadQwen3},
      {"qwen3_5", &ReadQwen35, {"linear_num_value_heads"}},
      {"qwen3_5_moe", &ReadQwen35Moe, {"linear_num_value_heads"}},
      {"qwen3_5_moe_text", &ReadQwen35Moe, {"linear_num_value_heads"}},
      {"qwen3_5_text", &ReadQwen35, {"linear_num_value_heads"}},
      {"qwen3_moe", &ReadQwen3Moe},
      {"qwen3_next", &ReadQwen3Next, {"linear_num_value_heads"}},
      {"seed_oss", &ReadSeedOss},
      {"smollm3", &ReadSmolLm3},
      {"starcoder2", &ReadStarcoder2},
  };
  return *all;
}

// What is known to be in a model of a type and has no field.
struct Refusal {
  const char* model_type;
  const char* part;
};

constexpr char kStates[] = "state-space layers";
constexpr char kMamba1[] = "Mamba layers of the first kind";
constexpr char kBeside[] =
    "attention and feed-forward parts beside each other behind one norm";
constexpr char kIndexed[] = "layers with sparse attention by an index";
constexpr char kEncoder[] = "an encoder and attention to it";

constexpr Refusal kRefusals[] = {
    {"bart", kEncoder},
    {"cohere", kBeside},
    {"cohere2", kBeside},
    {"deepseek_v32", kIndexed},
    {"falcon", kBeside},
    {"falcon_h1", "attention and Mamba beside each other in one layer"},
    {"falcon_mamba", kMamba1},
    {"gemma3n", "inputs of each layer and keys that layers share"},
    {"glm_moe_dsa", kIndexed},
    {"gptj", kBeside},
    {"jamba", kMamba1},
    {"kimi_linear", "layers with Kimi delta attention"},
    {"lfm2", "layers that are a short convolution"},
    {"lfm2_moe", "layers that are a short convolution"},
    {"longcat_flash", "layers with two attentions and experts without work"},
    {"mamba", kMamba1},
    {"minimax", "layers with lightning attention"},
    {"minimax_text_01", "layers with lightning attention"},
    {"olmo", "norms without weights"},
    {"phi", kBeside},
    {"recurrent_gemma", "recurrent layers"},
    {"rwkv", "recurrent layers"},
    {"t5", kEncoder},
    {"zamba", kMamba1},
    {"zamba2", "attention and feed-forward parts that layers share"},
};

// Keys of any type that make another model unless they are off.
constexpr Refusal kKeys[] = {
    {"add_cross_attention", "layers that attend to an encoder"},
    {"altup_num_inputs", "several residual streams"},
    {"attn_type_list", "layers with lightning attention"},
    {"audio_config", "parts for sound"},
    {"hidden_size_per_layer_input", "inputs of each layer"},
    {"index_topk", kIndexed},
    {"is_encoder_decoder", kEncoder},
    {"linear_num_value_heads", "gated delta layers"},
    {"mamba_d_state", kStates},
    {"moe_latent_size", "experts on a smaller residual stream"},
    {"num_kv_shared_layers", "layers that use keys of others"},
    {"ssm_state_size", kStates},
    {"use_cla", "layers that use keys of others"},
    {"use_mixed_mlp_moe", "layers with a dense part beside experts"},
    {"vision_config", "parts for images"},
    {"zero_expert_num", "experts without work"},
};

bool IsOff(const Json& value) {
  return value.is_null() || value == false || value == 0 || value == "" ||
         (value.is_structured() && value.empty());
}

// `own`: those that the type reads.
void CheckKeys(ConfigReader& read,
               const std::vector<absl::string_view>& own = {}) {
  for (const Refusal& key : kKeys) {
    const char* const name = key.model_type;
    if (std::count(own.begin(), own.end(), name) > 0) continue;
    if (read.Has(name) && !IsOff(read.Get(name))) read.NoField(name, key.part);
  }
  // Kinds of routers that take the same time.
  if (read.Has("scoring_func") && read.Get("scoring_func") != "softmax") {
    read.Only("scoring_func", "sigmoid");
  }
  if (read.Has("topk_method") && read.Get("topk_method") != "greedy" &&
      read.Get("topk_method") != "group_limited_greedy") {
    read.Only("topk_method", "noaux_tc");
  }
}

absl::Status TypeError(absl::string_view source, const Json& json,
                       const std::string& type) {
  if (type.empty()) {
    const std::string known = absl::StrJoin(HuggingFaceTypes(), ", ");
    return InFile(
        source, 0,
        WithValue(FieldError("model_type",
                             absl::StrCat("missing; needed for the kind of "
                                          "model; known: ",
                                          known)),
                  "", known));
  }
  ConfigReader read(json, source, "");
  for (const Refusal& refusal : kRefusals) {
    if (type != refusal.model_type) continue;
    read.NoField("model_type", refusal.part);
    return read.status();
  }
  CheckKeys(read);
  PW_RETURN_IF_ERROR(read.status());
  return InFile(source, 0,
                InField("model_type",
                        UnknownName("model type", type, HuggingFaceTypes())));
}

std::string TypeOf(const Json& json) {
  const auto type = json.find("model_type");
  return type != json.end() && type->is_string() ? type->get<std::string>()
                                                 : "";
}

// The first key that stands twice in one object.
class TwiceFinder {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    const auto level = static_cast<size_t>(depth);
    if (keys_.size() <= level + 1) keys_.resize(level + 2);
    if (event == Json::parse_event_t::object_start) keys_[level + 1].clear();
    if (event == Json::parse_event_t::key && twice_.empty() &&
        !keys_[level].insert(parsed.get<std::string>()).second) {
      twice_ = parsed.get<std::string>();
    }
    return true;
  }
  const std::string& twice() const { return twice_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string twice_;
};

std::vector<std::string> NotesOf(const Json& json, bool part) {
  std::vector<std::string> notes;
  if (part && json.contains("vision_config")) {
    notes.push_back(
        "model.hf: text_config is the model; vision_config has no field and "
        "is left out");
  }
  const auto quantized = json.find("quantization_config");
  if (quantized != json.end() && quantized->is_object()) {
    notes.push_back(
        "model.hf: quantization_config is of the weights on disk; "
        "strategy.precision says in what the model is trained");
  }
  return notes;
}

}  // namespace

std::vector<std::string> HuggingFaceTypes() {
  std::vector<std::string> types;
  for (const Architecture& architecture : Architectures()) {
    types.push_back(architecture.model_type);
  }
  return types;
}

absl::StatusOr<ModelSpec> ModelFromHuggingFace(absl::string_view text,
                                               absl::string_view source_name) {
  TwiceFinder finder;
  const Json json = Json::parse(
      text.begin(), text.end(),
      [&](int depth, Json::parse_event_t event, Json& parsed) {
        return finder(depth, event, parsed);
      },
      false);
  if (json.is_discarded()) return JsonFault(text, source_name);
  if (!finder.twice().empty()) {
    return InFile(source_name, 0,
                  FieldError(finder.twice(), "the key stands here twice"));
  }
  if (!json.is_object()) {
    return InFile(source_name, 0,
                  WithValue(absl::InvalidArgumentError(
                                "not a JSON object; allowed: a Hugging Face "
                                "config.json"),
                            "", "a Hugging Face config.json"));
  }
  const std::string type = TypeOf(json);
  const bool part = (type == "llama4" || type == "gemma3" ||
                     type == "qwen3_5" || type == "qwen3_5_moe") &&
                    json.contains("text_config") &&
                    json["text_config"].is_object();
  Json read = part ? json["text_config"] : json;
  if (part && !read.contains("tie_word_embeddings") &&
      json.contains("tie_word_embeddings")) {
    read["tie_word_embeddings"] = json["tie_word_embeddings"];
  }
  for (const Architecture& architecture : Architectures()) {
    if (type != architecture.model_type) continue;
    ModelSpec model;
    model.name = architecture.model_type;
    model.source = std::string(source_name);
    model.notes = NotesOf(json, part);
    ConfigReader reader(read, source_name, part ? "text_config." : "");
    CheckKeys(reader, architecture.own);
    architecture.read(reader, &model);
    PW_RETURN_IF_ERROR(reader.status());
    PW_RETURN_IF_ERROR(InFile(source_name, 0, CheckModel(model)));
    return model;
  }
  return TypeError(source_name, json, type);
}

}  // namespace pipewright
