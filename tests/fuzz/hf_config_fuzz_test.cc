#include <catch2/catch.hpp>
#include <iterator>
#include <random>
#include <string>

#include "tests/support/hf_config_fuzz_target.h"

namespace pipewright {
namespace {

constexpr const char* kCorpus[] = {
    R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
"intermediate_size": 14336, "max_position_embeddings": 8192,
"tie_word_embeddings": false, "head_dim": null})",
    R"({"model_type": "deepseek_v3", "num_hidden_layers": 61,
"hidden_size": 7168, "num_attention_heads": 128, "vocab_size": 129280,
"intermediate_size": 18432, "max_position_embeddings": 4096,
"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
"qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256,
"num_experts_per_tok": 8, "moe_intermediate_size": 2048,
"n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1})",
    R"({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12,
"vocab_size": 50257, "n_positions": 1024, "n_inner": null,
"resid_pdrop": 0.1})",
};

constexpr const char* kPieces[] = {"99999999999999999999",
                                   "-1",
                                   "1e999",
                                   "2147483647",
                                   "9223372036854775807",
                                   "0.5",
                                   "null",
                                   "true",
                                   "{",
                                   "}",
                                   "[",
                                   "]",
                                   ":",
                                   ",",
                                   "\"",
                                   "\\u",
                                   "\xff",
                                   "0",
                                   "\"bert\"",
                                   "\n"};

TEST_CASE("fuzz: mutated config.json files never break a promise", "[fuzz]") {
  std::mt19937 random(20240713);
  int taken = 0;
  constexpr int kRounds = 20000;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = kCorpus[random() % std::size(kCorpus)];
    for (unsigned edit = random() % 4; edit > 0 && !text.empty(); --edit) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.erase(at, 1 + random() % 4);
          break;
        case 1:
          text.insert(at, kPieces[random() % std::size(kPieces)]);
          break;
        case 2:
          text[at] = static_cast<char>(random() % 256);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), 12));
      }
    }
    taken += testing::FuzzHuggingFaceConfig(text) ? 1 : 0;
  }
  // The mutations must leave enough that is still read.
  CHECK(taken > kRounds / 10);
  CHECK(taken < kRounds);
}

}  // namespace
}  // namespace pipewright
