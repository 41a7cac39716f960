// The one list of a model's sizes and properties that the configuration can
// give, each with its place in ModelChoice and in ModelSpec.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/config/run_config.h"
#include "sim/model/model.h"

namespace pipewright {

// Far beyond any model, and small enough that the product of two sizes, times
// a few, is below 2^63. Sums of bytes are checked apart (CheckBytes).
inline constexpr int64_t kMostLayers = 100'000;
inline constexpr int64_t kMostWidth = int64_t{1} << 26;
inline constexpr int64_t kMostHeads = int64_t{1} << 20;
inline constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;

struct ModelSizeRow {
  const char* path;
  std::optional<int64_t> ModelChoice::*given;
  int64_t ModelSpec::*size;
  int64_t most;
  int64_t least = 0;  // 1: a model by hand needs it
};

inline const std::vector<ModelSizeRow>& ModelSizeRows() {
  using Choice = ModelChoice;
  using Spec = ModelSpec;
  static const std::vector<ModelSizeRow> rows = {
      {"model.layers", &Choice::layers, &Spec::layers, kMostLayers, 1},
      {"model.hidden", &Choice::hidden, &Spec::hidden, kMostWidth, 1},
      {"model.heads", &Choice::heads, &Spec::heads, kMostHeads, 1},
      {"model.kv_heads", &Choice::kv_heads, &Spec::kv_heads, kMostHeads, 1},
      {"model.head_dim", &Choice::head_dim, &Spec::head_dim, kMostWidth},
      {"model.ffn_hidden", &Choice::ffn_hidden, &Spec::ffn_hidden, kMostWidth},
      {"model.vocabulary", &Choice::vocabulary, &Spec::vocabulary, kMostTokens,
       1},
      {"model.sequence", &Choice::sequence, &Spec::sequence, kMostTokens, 1},
      {"model.positions", &Choice::positions, &Spec::positions, kMostTokens},
      {"model.token_types", &Choice::token_types, &Spec::token_types,
       kMostTokens},
      {"model.experts", &Choice::experts, &Spec::experts, kMostHeads},
      {"model.experts_per_token", &Choice::experts_per_token,
       &Spec::experts_per_token, kMostHeads},
      {"model.expert_ffn_hidden", &Choice::expert_ffn_hidden,
       &Spec::expert_ffn_hidden, kMostWidth},
      {"model.shared_ffn_hidden", &Choice::shared_ffn_hidden,
       &Spec::shared_ffn_hidden, kMostWidth},
      {"model.first_dense_layers", &Choice::first_dense_layers,
       &Spec::first_dense_layers, kMostLayers},
      {"model.q_lora_rank", &Choice::q_lora_rank, &Spec::q_lora_rank,
       kMostWidth},
      {"model.kv_lora_rank", &Choice::kv_lora_rank, &Spec::kv_lora_rank,
       kMostWidth},
      {"model.qk_nope_head_dim", &Choice::qk_nope_head_dim,
       &Spec::qk_nope_head_dim, kMostWidth},
      {"model.qk_rope_head_dim", &Choice::qk_rope_head_dim,
       &Spec::qk_rope_head_dim, kMostWidth},
      {"model.v_head_dim", &Choice::v_head_dim, &Spec::v_head_dim, kMostWidth},
      {"model.mtp_layers", &Choice::mtp_layers, &Spec::mtp_layers, kMostLayers},
      {"model.frozen_layers", &Choice::frozen_layers, &Spec::frozen_layers,
       kMostLayers},
      {"model.lora_rank", &Choice::lora_rank, &Spec::lora_rank, kMostWidth},
      {"model.window", &Choice::window, &Spec::window, kMostTokens},
      {"model.full_attention_every", &Choice::full_attention_every,
       &Spec::full_attention_every, kMostLayers},
  };
  return rows;
}

struct ModelPropertyRow {
  const char* path;
  std::optional<bool> ModelChoice::*given;
  bool ModelSpec::*property;
};

inline const std::vector<ModelPropertyRow>& ModelPropertyRows() {
  using Choice = ModelChoice;
  using Spec = ModelSpec;
  static const std::vector<ModelPropertyRow> rows = {
      {"model.gated", &Choice::gated, &Spec::gated},
      {"model.tied_embeddings", &Choice::tied_embeddings,
       &Spec::tied_embeddings},
      {"model.causal", &Choice::causal, &Spec::causal},
      {"model.dropout", &Choice::dropout, &Spec::dropout},
      {"model.layer_norm", &Choice::layer_norm, &Spec::layer_norm},
      {"model.qkv_bias", &Choice::qkv_bias, &Spec::qkv_bias},
      {"model.bias", &Choice::bias, &Spec::bias},
      {"model.qk_norm", &Choice::qk_norm, &Spec::qk_norm},
      {"model.final_norm", &Choice::final_norm, &Spec::final_norm},
      {"model.embedding_norm", &Choice::embedding_norm, &Spec::embedding_norm},
      {"model.pooler", &Choice::pooler, &Spec::pooler},
      {"model.masked_lm_head", &Choice::masked_lm_head, &Spec::masked_lm_head},
  };
  return rows;
}

}  // namespace pipewright
