#include "sim/model/hf_config.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

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
  CHECK(says("", "a/config.json: not a JSON object"));
  CHECK(says("[1]", "not a JSON object"));
  CHECK(says("{}", "a/config.json: model_type: missing"));
  CHECK(says(R"({"model_type": "lama"})", "did you mean 'llama'?"));
  CHECK(says(R"({"model_type": "mamba"})", "known: bert, deepseek_v2"));
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
                                              "\"decoder_sparse_step\": 2"}}),
      "decoder_sparse_step: 2"));
}

}  // namespace
}  // namespace pipewright::hf_config_test
