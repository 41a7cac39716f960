#include "sim/model/hf_config.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/model/ops.h"

namespace pipewright::hf_config_test {
namespace {

// The keys of the published files that decide shapes; values are facts.
const char* const kLlama3 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 8192, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "tie_word_embeddings": false,
  "vocab_size": 128256})";

struct Import {
  const char* text;
  const char* preset;  // that must come out; "": none
  double parameters;
};

const Import kImports[] = {
    {kLlama3, "llama3-8b", 8030261248.0},
    {R"({"model_type": "mistral", "hidden_size": 4096,
         "intermediate_size": 14336, "max_position_embeddings": 32768,
         "num_attention_heads": 32, "num_hidden_layers": 32,
         "num_key_value_heads": 8, "vocab_size": 32000,
         "sliding_window": 4096})",
     "mistral-7b", 7241732096.0},
    {R"({"model_type": "qwen2", "hidden_size": 3584,
         "intermediate_size": 18944, "max_position_embeddings": 131072,
         "num_attention_heads": 28, "num_hidden_layers": 28,
         "num_key_value_heads": 4, "vocab_size": 152064,
         "tie_word_embeddings": false})",
     "qwen2.5-7b", 7615616512.0},
    {R"({"model_type": "qwen3", "hidden_size": 4096, "head_dim": 128,
         "intermediate_size": 12288, "max_position_embeddings": 40960,
         "num_attention_heads": 32, "num_hidden_layers": 36,
         "num_key_value_heads": 8, "vocab_size": 151936})",
     "qwen3-8b", 8190735360.0},
    {R"({"model_type": "qwen3_moe", "hidden_size": 2048, "head_dim": 128,
         "intermediate_size": 6144, "max_position_embeddings": 40960,
         "num_attention_heads": 32, "num_hidden_layers": 48,
         "num_key_value_heads": 4, "vocab_size": 151936, "num_experts": 128,
         "num_experts_per_tok": 8, "moe_intermediate_size": 768,
         "decoder_sparse_step": 1, "mlp_only_layers": []})",
     "qwen3-30b-a3b", 30532122624.0},
    {R"({"model_type": "mixtral", "hidden_size": 4096,
         "intermediate_size": 14336, "max_position_embeddings": 32768,
         "num_attention_heads": 32, "num_hidden_layers": 32,
         "num_key_value_heads": 8, "vocab_size": 32000,
         "num_local_experts": 8, "num_experts_per_tok": 2})",
     "mixtral-8x7b", 46702792704.0},
    {R"({"model_type": "deepseek_v2", "hidden_size": 5120,
         "intermediate_size": 12288, "max_position_embeddings": 163840,
         "num_attention_heads": 128, "num_hidden_layers": 60,
         "num_key_value_heads": 128, "vocab_size": 102400,
         "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
         "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 160,
         "num_experts_per_tok": 6, "moe_intermediate_size": 1536,
         "n_shared_experts": 2, "first_k_dense_replace": 1,
         "moe_layer_freq": 1})",
     "deepseek-v2", 235741434880.0},
    {R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
         "n_positions": 1024, "vocab_size": 50257, "resid_pdrop": 0.1})",
     "gpt2", 124439808.0},
    // GPT-NeoX-20B: Black et al., arXiv 2204.06745, table 1 (20,554,567,680).
    {R"({"model_type": "gpt_neox", "hidden_size": 6144,
         "intermediate_size": 24576, "max_position_embeddings": 2048,
         "num_attention_heads": 64, "num_hidden_layers": 44,
         "vocab_size": 50432, "tie_word_embeddings": false})",
     "", 20554567680.0},
    {R"({"model_type": "bert", "hidden_size": 768, "intermediate_size": 3072,
         "max_position_embeddings": 512, "num_attention_heads": 12,
         "num_hidden_layers": 12, "vocab_size": 30522, "type_vocab_size": 2,
         "hidden_dropout_prob": 0.1})",
     "bert-base", 110104890.0},
};

TEST_CASE("model: published config.json files give the presets", "[model]") {
  for (const Import& import : kImports) {
    const auto model = ModelFromHuggingFace(import.text, "a/config.json");
    INFO(import.text << model.status().message());
    REQUIRE(model.ok());
    CHECK(model->source == "a/config.json");
    CHECK(model->Parameters() == import.parameters);
    if (*import.preset == '\0') continue;
    const auto preset = FindModel(import.preset);
    REQUIRE(preset.ok());
    CHECK(model->Parameters() == preset->Parameters());
    CHECK(model->ActiveParameters() == preset->ActiveParameters());
    CHECK(model->dropout == preset->dropout);
    CHECK(model->causal == preset->causal);
    CHECK(model->tied_embeddings == preset->tied_embeddings);
  }
}

TEST_CASE("model: DeepSeek-V3's config.json has multi-token prediction",
          "[model]") {
  const std::string text = absl::StrReplaceAll(
      kImports[6].text,
      {{"deepseek_v2", "deepseek_v3"},
       {"\"moe_layer_freq\": 1", "\"num_nextn_predict_layers\": 1"}});
  const auto model = ModelFromHuggingFace(text, "config.json");
  REQUIRE(model.ok());
  CHECK(model->mtp_layers == 1);
  CHECK(model->shared_ffn_hidden == 2 * 1536);
  CHECK(model->ActiveParameters() < model->Parameters() / 10);
}

TEST_CASE("model: a wrong config.json is told by file and key", "[model]") {
  const auto says = [](const std::string& text, const char* part) {
    const absl::Status status =
        ModelFromHuggingFace(text, "a/config.json").status();
    INFO(status.message());
    return status.code() == absl::StatusCode::kInvalidArgument &&
           absl::StrContains(status.message(), part);
  };
  const auto with = [](const char* from, const char* to) {
    return absl::StrReplaceAll(kLlama3, {{from, to}});
  };
  CHECK(says("", "a/config.json:1: not JSON: "));
  CHECK(says("{\n\"hidden_size\": 4,\n]", "a/config.json:3: not JSON: "));
  CHECK(says("[1]", "not a JSON object"));
  CHECK(says("{}", "a/config.json: model_type: missing"));
  CHECK(says(R"({"model_type": "lama"})", "did you mean 'llama'?"));
  CHECK(says(R"({"model_type": "abacus"})", "known: bamba, bert, deepseek_v2"));
  CHECK(says(
      R"({"model_type": "mamba"})",
      "a/config.json: model_type: \"mamba\": Mamba layers of the first kind "
      "have no field in a model"));
  CHECK(says(with("\"vocab_size\"", "\"vocab\""),
             "a/config.json: vocab_size: missing; needed for the embedding "
             "and the output head (model.vocabulary)"));
  CHECK(says(with("128256", "\"many\""),
             "a/config.json: vocab_size: \"many\" is not allowed"));
  CHECK(says(with("128256", "-1"), "vocab_size: -1"));
  CHECK(says(with("128256", "1e3"), "vocab_size: 1000.0"));
  CHECK(says(with("128256", "99999999999999999999"), "vocab_size"));
  CHECK(says(with("32,", "0,"), "a/config.json: model.layers: 0"));
  CHECK(says(with("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5"),
             "model.kv_heads: 5 is not allowed; allowed: a divisor of heads "
             "(32): 4, 8"));
  CHECK(says(with("false", "\"no\""), "true, false"));
  CHECK(says(
      absl::StrReplaceAll(kImports[4].text, {{"\"decoder_sparse_step\": 1",
                                              "\"decoder_sparse_step\": 0"}}),
      "decoder_sparse_step: 0"));
  CHECK(says(with("\"vocab_size\": 128256",
                  "\"vocab_size\": 128256, \"hidden_size\": 4096"),
             "a/config.json: hidden_size: the key stands here twice"));
  CHECK(says(with("\"vocab_size\": 128256",
                  "\"vocab_size\": 128256, \"rope\": {\"a\": 1, \"a\": 2}"),
             "a/config.json: a: the key stands here twice"));
  // In two objects it may stand.
  CHECK(ModelFromHuggingFace(
            with("\"vocab_size\": 128256",
                 "\"vocab_size\": 128256, \"rope\": {\"hidden_size\": 1}"),
            "")
            .ok());
}

struct Type {
  const char* text;
  double parameters;  // without multi-token prediction
};

// Of published checkpoints, the tensors of text alone; corrections of routers,
// which files have and no gradient reaches, are taken off.
const Type kTypes[] = {
    {R"({"model_type":"gemma3_text","num_hidden_layers":26,"hidden_size":1152,
        "intermediate_size":6912,"num_attention_heads":4,
        "num_key_value_heads":1,"head_dim":256,"vocab_size":262144,
        "max_position_embeddings":32768,"sliding_window":512})",
     999885952},
    // google/gemma-3-4b, text: keys with defaults are left out.
    {R"({"model_type":"gemma3","text_config":{"hidden_size":2560,
        "intermediate_size":10240,"num_hidden_layers":34,
        "sliding_window":1024},"vision_config":{"hidden_size":1152}})",
     3880263168},
    {R"({"model_type":"gpt_oss","num_hidden_layers":24,"hidden_size":2880,
        "intermediate_size":2880,"num_attention_heads":64,
        "num_key_value_heads":8,"head_dim":64,"vocab_size":201088,
        "max_position_embeddings":131072,"num_local_experts":32,
        "num_experts_per_tok":4,"sliding_window":128})",
     20914757184},
    {R"({"model_type":"gpt_oss","num_hidden_layers":36,"hidden_size":2880,
        "intermediate_size":2880,"num_attention_heads":64,
        "vocab_size":201088,"max_position_embeddings":131072,
        "num_local_experts":128,"num_experts_per_tok":4})",
     116829156672},
    {R"({"model_type":"qwen2_moe","num_hidden_layers":24,"hidden_size":2048,
        "intermediate_size":5632,"num_attention_heads":16,
        "num_key_value_heads":16,"vocab_size":151936,
        "max_position_embeddings":8192,"num_experts":60,
        "num_experts_per_tok":4,"moe_intermediate_size":1408,
        "shared_expert_intermediate_size":5632})",
     14315784192},
    {R"({"model_type":"glm4_moe","num_hidden_layers":46,"hidden_size":4096,
        "intermediate_size":10944,"num_attention_heads":96,
        "num_key_value_heads":8,"head_dim":128,"vocab_size":151552,
        "max_position_embeddings":131072,"n_routed_experts":128,
        "n_shared_experts":1,"num_experts_per_tok":8,
        "moe_intermediate_size":1408,"first_k_dense_replace":1,
        "attention_bias":true,"use_qk_norm":false,
        "num_nextn_predict_layers":1})",
     106852245504},
    {R"({"model_type":"gemma2","num_hidden_layers":26,"hidden_size":2304,
        "intermediate_size":9216,"vocab_size":256000,
        "max_position_embeddings":8192})",
     2614341888},
    {R"({"model_type":"gemma","num_hidden_layers":18,"hidden_size":2048,
        "intermediate_size":16384,"num_attention_heads":8,
        "num_key_value_heads":1,"head_dim":256,"vocab_size":256000,
        "max_position_embeddings":8192})",
     2506172416},
    {R"({"model_type":"phi3","num_hidden_layers":32,"hidden_size":3072,
        "intermediate_size":8192,"num_attention_heads":32,
        "num_key_value_heads":32,"vocab_size":32064,
        "max_position_embeddings":4096,"sliding_window":2047})",
     3821079552},
    {R"({"model_type":"olmoe","num_hidden_layers":16,"hidden_size":2048,
        "intermediate_size":1024,"num_attention_heads":16,
        "num_key_value_heads":16,"vocab_size":50304,
        "max_position_embeddings":4096,"num_experts":64,
        "num_experts_per_tok":8})",
     6919161856},
    {R"({"model_type":"olmo2","num_hidden_layers":32,"hidden_size":4096,
        "intermediate_size":11008,"num_attention_heads":32,
        "num_key_value_heads":32,"vocab_size":100352,
        "max_position_embeddings":4096})",
     7298617344},
    {R"({"model_type":"glm4","num_hidden_layers":40,"hidden_size":4096,
        "intermediate_size":13696,"num_attention_heads":32,
        "num_key_value_heads":2,"head_dim":128,"vocab_size":151552,
        "max_position_embeddings":32768,"attention_bias":true})",
     9400279040},
    {R"({"model_type":"starcoder2","num_hidden_layers":30,"hidden_size":3072,
        "intermediate_size":12288,"num_attention_heads":24,
        "num_key_value_heads":2,"vocab_size":49152,
        "max_position_embeddings":16384,"sliding_window":4096})",
     3030371328},
    {R"({"model_type":"smollm3","num_hidden_layers":36,"hidden_size":2048,
        "intermediate_size":11008,"num_attention_heads":16,
        "num_key_value_heads":4,"vocab_size":128256,
        "max_position_embeddings":65536})",
     3075098624},
    {R"({"model_type":"seed_oss","num_hidden_layers":64,"hidden_size":5120,
        "intermediate_size":27648,"num_attention_heads":80,
        "num_key_value_heads":8,"vocab_size":155136,
        "max_position_embeddings":524288})",
     36151104512},
    {R"({"model_type":"ernie4_5_moe","num_hidden_layers":28,
        "hidden_size":2560,"intermediate_size":12288,
        "num_attention_heads":20,"num_key_value_heads":4,
        "vocab_size":103424,"max_position_embeddings":131072,
        "moe_num_experts":64,"moe_intermediate_size":1536,"moe_k":6,
        "tie_word_embeddings":true})",
     21825437888 - 27 * 64},
    {R"({"model_type":"llama4_text","num_hidden_layers":48,
        "hidden_size":5120,"intermediate_size":8192,
        "max_position_embeddings":10485760})",
     107769861120},
    {R"({"model_type":"llama4","text_config":{"num_hidden_layers":48,
        "hidden_size":5120,"intermediate_size":8192,
        "max_position_embeddings":1048576,"num_local_experts":128,
        "interleave_moe_layer_step":2,"use_qk_norm":false}})",
     400711848960},
    {R"({"model_type":"kimi_k2","num_hidden_layers":61,"hidden_size":7168,
        "intermediate_size":18432,"num_attention_heads":64,
        "num_key_value_heads":64,"vocab_size":163840,"q_lora_rank":1536,
        "kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
        "v_head_dim":128,"n_routed_experts":384,"n_shared_experts":1,
        "num_experts_per_tok":8,"moe_intermediate_size":2048,
        "first_k_dense_replace":1,"num_nextn_predict_layers":0,
        "max_position_embeddings":131072})",
     1026408232448 - 60 * 384},
    {R"({"model_type":"minimax_m2","num_hidden_layers":62,
        "hidden_size":3072,"intermediate_size":1536,
        "num_attention_heads":48,"num_key_value_heads":8,"head_dim":128,
        "vocab_size":200064,"max_position_embeddings":196608,
        "num_local_experts":256,"num_experts_per_tok":8})",
     228689748992},
    {R"({"model_type":"hunyuan_v1_moe","num_hidden_layers":32,
        "hidden_size":4096,"intermediate_size":3072,
        "num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,
        "vocab_size":128167,"max_position_embeddings":32768,
        "tie_word_embeddings":true,"num_experts":64,
        "moe_topk":[8,8,8,8],"moe_intermediate_size":[3072,3072],
        "num_shared_expert":[1,1]})",
     80393183232},
};

TEST_CASE("model: types of config.json have the published parameters",
          "[model]") {
  for (const Type& type : kTypes) {
    const auto model = ModelFromHuggingFace(type.text, "config.json");
    INFO(type.text << model.status().message());
    REQUIRE(model.ok());
    const double main =
        model->Parameters() -
        static_cast<double>(model->mtp_layers) * model->MtpLayerParameters();
    INFO(static_cast<int64_t>(main));
    CHECK(main == type.parameters);
    // The inventory of operations holds every one.
    TrainingSpec training;
    training.sequence = 4096;
    double sum = 0;
    const auto add = [&](BlockKind kind, int64_t layer, double count) {
      for (const ModelOp& op : BlockOps(*model, training, kind, layer)) {
        if (!op.is_tied) sum += count * op.parameters;
      }
    };
    add(BlockKind::kEmbedding, 0, 1);
    for (int64_t layer = 0; layer < model->layers; ++layer) {
      add(model->IsExpertLayer(layer) ? BlockKind::kExpertLayer
                                      : BlockKind::kDenseLayer,
          layer, 1);
    }
    add(BlockKind::kMtpLayer, model->layers,
        static_cast<double>(model->mtp_layers));
    add(BlockKind::kHead, 0, 1);
    CHECK(sum == model->Parameters());
  }
}

// A small model of `type` with more keys.
std::string Small(const std::string& type, const std::string& more) {
  return absl::StrCat(
      R"({"model_type":")", type,
      R"(","num_hidden_layers":8,"hidden_size":64,"intermediate_size":128,)",
      R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":512,)",
      R"("max_position_embeddings":1024)", more.empty() ? "" : ",", more, "}");
}

// Windows of the layers, "." for those that look back on all.
std::string Windows(const std::string& type, const std::string& more) {
  const auto model = ModelFromHuggingFace(Small(type, more), "config.json");
  if (!model.ok()) return std::string(model.status().message());
  std::string text;
  for (int64_t layer = 0; layer < model->layers; ++layer) {
    absl::StrAppend(&text, model->WindowOf(layer) == 0
                               ? "."
                               : absl::StrCat(model->WindowOf(layer)));
  }
  return absl::StrCat(text, model->chunked_window ? " chunks" : "");
}

TEST_CASE("model: windows of a config.json are those of its type", "[model]") {
  const std::string experts =
      R"("num_experts":4,"num_local_experts":4,"num_experts_per_tok":2,)"
      R"("moe_intermediate_size":32,"sliding_window":8)";
  const std::string window = R"("sliding_window":8)";
  const std::string used = R"(,"use_sliding_window":true)";
  CHECK(Windows("llama", window) == "........");
  CHECK(Windows("mistral", window) == "88888888");
  // The type's own, unless the file says null.
  CHECK(Windows("mistral", R"("head_dim":16)") ==
        "40964096409640964096409640964096");
  CHECK(Windows("mistral", R"("sliding_window":null)") == "........");
  CHECK(Windows("mixtral", experts) == "88888888");
  CHECK(Windows("phi3", "") == "........");
  CHECK(Windows("qwen2", window) == "........");
  CHECK(Windows("qwen2", absl::StrCat(window, used)) == "........");
  CHECK(Windows("qwen2",
                absl::StrCat(window, used, R"(,"max_window_layers":3)")) ==
        "...88888");
  CHECK(Windows("qwen2", absl::StrCat(window, R"(,"max_window_layers":3)")) ==
        "........");
  CHECK(Windows("qwen3",
                absl::StrCat(window, used, R"(,"max_window_layers":0)")) ==
        "88888888");
  CHECK(Windows("qwen2_moe", absl::StrCat(experts, used)) == "8.8.8.8.");
  CHECK(Windows("qwen3_moe", absl::StrCat(experts, used)) == "88888888");
  CHECK(Windows("gpt_oss", experts) == "8.8.8.8.");
  CHECK(Windows("gemma2", window) == "8.8.8.8.");
  CHECK(Windows("gemma3_text", window) == "88888.88");
  CHECK(Windows("gemma3_text",
                absl::StrCat(window, R"(,"sliding_window_pattern":3)")) ==
        "88.88.88");
  CHECK(Windows("olmo3", window) == "888.888.");
  CHECK(Windows("llama4_text",
                absl::StrCat(experts, R"(,"attention_chunk_size":16)")) ==
        "161616.161616. chunks");
  CHECK(Windows("llama4_text",
                absl::StrCat(experts, R"(,"attention_chunk_size":null)")) ==
        "........");
  CHECK(Windows("llama4_text",
                absl::StrCat(experts,
                             R"(,"attention_chunk_size":16,"no_rope_layers":)"
                             "[1,0,1,0,1,0,1,0]")) == "16.16.16.16. chunks");
  // layer_types stands above the rule.
  const auto types = [](const std::string& letters) {
    std::vector<std::string> names;
    for (const char letter : letters) {
      names.push_back(letter == 'f'   ? "\"full_attention\""
                      : letter == 's' ? "\"sliding_attention\""
                                      : "\"linear_attention\"");
    }
    return absl::StrCat(R"("sliding_window":8,"layer_types":[)",
                        absl::StrJoin(names, ","), "]");
  };
  CHECK(Windows("qwen2", types("ffffssss")) == "....8888");
  CHECK(Windows("mistral", types("ffffffff")) == "........");
  CHECK(Windows("llama", types("sssfsssf")) == "888.888.");
  CHECK(absl::StrContains(Windows("qwen2", types("fssfffss")),
                          "layers with and without a window in this order "
                          "have no field in a model"));
  CHECK(absl::StrContains(
      Windows("qwen3", types("lllflllf")),
      "layers of the kind 'linear_attention' (6 of 8) have no field"));
  CHECK(absl::StrContains(Windows("qwen3", types("ff")),
                          "a kind for each of 8 layers"));
  CHECK(absl::StrContains(
      Windows("llama", R"("layer_types":["sliding_attention",)"
                       R"("full_attention","full_attention","full_attention",)"
                       R"("full_attention","full_attention","full_attention",)"
                       R"("full_attention"])"),
      "sliding_window: missing"));
}

// "e" for layers with experts.
std::string ExpertLayers(const std::string& type, const std::string& more) {
  const auto model = ModelFromHuggingFace(
      Small(type, absl::StrCat(
                      R"("num_experts":4,"num_local_experts":4,)"
                      R"("n_routed_experts":4,"moe_num_experts":4,"moe_k":2,)"
                      R"("num_experts_per_tok":2,"moe_intermediate_size":32,)"
                      R"("kv_lora_rank":8,"qk_nope_head_dim":8,)"
                      R"("qk_rope_head_dim":8,"v_head_dim":8)",
                      more)),
      "config.json");
  if (!model.ok()) return std::string(model.status().message());
  std::string text;
  for (int64_t layer = 0; layer < model->layers; ++layer) {
    text += model->IsExpertLayer(layer) ? 'e' : '.';
  }
  return text;
}

TEST_CASE("model: layers with experts are those of the type", "[model]") {
  CHECK(ExpertLayers("qwen3_moe", "") == "eeeeeeee");
  CHECK(ExpertLayers("qwen3_moe", R"(,"decoder_sparse_step":2)") == ".e.e.e.e");
  CHECK(ExpertLayers("qwen3_moe", R"(,"mlp_only_layers":[0,1])") == "..eeeeee");
  CHECK(absl::StrContains(
      ExpertLayers("qwen3_moe", R"(,"mlp_only_layers":[3])"),
      "mlp_only_layers: [3]: layers with and without experts in this order "
      "have no field in a model"));
  CHECK(absl::StrContains(ExpertLayers("qwen3_moe", R"(,"mlp_only_layers":3)"),
                          "a list of layers"));
  CHECK(ExpertLayers("llama4_text", R"(,"interleave_moe_layer_step":2)") ==
        ".e.e.e.e");
  CHECK(ExpertLayers("llama4_text", R"(,"moe_layers":[2,5])") == "..e..e..");
  CHECK(ExpertLayers("deepseek_v3", R"(,"first_k_dense_replace":3)") ==
        "...eeeee");
  CHECK(ExpertLayers("deepseek_v2",
                     R"(,"first_k_dense_replace":1,"moe_layer_freq":2)") ==
        "..e.e.e.");
  CHECK(ExpertLayers("ernie4_5_moe", "") == ".eeeeeee");
  CHECK(ExpertLayers("ernie4_5_moe",
                     R"(,"moe_layer_interval":3,"moe_layer_end_index":-1)") ==
        "..e..e..");
  CHECK(absl::StrContains(
      ExpertLayers("ernie4_5_moe", R"(,"moe_layer_end_index":5)"),
      "have no field in a model"));
}

TEST_CASE("model: biases of a config.json are those of its type", "[model]") {
  const auto read = [](const std::string& type, const std::string& more) {
    return *ModelFromHuggingFace(Small(type, more), "config.json");
  };
  const ModelSpec plain = read("llama", "");
  const ModelSpec attention = read("llama", R"("attention_bias":true)");
  // Queries, keys, values and the projection.
  CHECK(attention.Parameters() - plain.Parameters() == 8 * (64 + 64 + 64));
  const ModelSpec all =
      read("llama", R"("attention_bias":true,"mlp_bias":true)");
  CHECK(all.Parameters() - attention.Parameters() == 8 * (2 * 128 + 64));
  CHECK(absl::StrContains(
      ModelFromHuggingFace(Small("llama", R"("mlp_bias":true)"), "")
          .status()
          .message(),
      "mlp_bias: true: biases of the feed-forward part without one"));
  CHECK(read("glm4", R"("attention_bias":true)").projection_bias == false);
  CHECK(read("seed_oss", "").qkv_bias);
  CHECK_FALSE(read("seed_oss", "").projection_bias);
}

TEST_CASE("model: parts of a config.json without a field are named",
          "[model]") {
  const auto says = [](const std::string& text) {
    return std::string(
        ModelFromHuggingFace(text, "a/config.json").status().message());
  };
  CHECK(absl::StrContains(says(Small("cohere2", "")), "behind one norm"));
  CHECK(says(Small("llama", R"("num_kv_shared_layers":2)")) ==
        "a/config.json: num_kv_shared_layers: 2: layers that use keys of "
        "others have no field in a model");
  CHECK(says(Small("llama", R"("num_kv_shared_layers":0)")).empty());
  CHECK(absl::StrContains(
      says(R"({"model_type":"mistral3","vision_config":{"a":1}})"),
      "vision_config: {\"a\":1}: parts for images have no field"));
  CHECK(absl::StrContains(says(Small("kimi_k2", R"("scoring_func":"tanh")")),
                          "scoring_func: \"tanh\" is not allowed"));
  // Text that is read, and what is not.
  const auto llama4 = ModelFromHuggingFace(kTypes[17].text, "");
  REQUIRE(llama4.ok());
  CHECK(llama4->notes.empty());
  const auto gemma3 = ModelFromHuggingFace(kTypes[1].text, "");
  REQUIRE(gemma3.ok());
  REQUIRE(gemma3->notes.size() == 1);
  CHECK(absl::StrContains(gemma3->notes[0], "vision_config has no field"));
  CHECK(absl::StrContains(
      says(R"({"model_type":"llama4","text_config":{"hidden_size":"x"}})"),
      "text_config.num_hidden_layers: missing"));
}

}  // namespace
}  // namespace pipewright::hf_config_test
