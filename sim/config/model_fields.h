// The one list of a model's sizes and properties that the configuration can
// give, each with its place in ModelChoice and in ModelSpec.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/config/run_config.h"
#include "sim/model/model.h"

namespace pipewright {

struct ModelSizeRow {
  const char* path;
  std::optional<int64_t> ModelChoice::*given;
  int64_t ModelSpec::*size;
  int64_t least = 0;  // 1: a model by hand needs it
};

inline const std::vector<ModelSizeRow>& ModelSizeRows() {
  using Choice = ModelChoice;
  using Spec = ModelSpec;
  static const std::vector<ModelSizeRow> rows = {
      {"model.layers", &Choice::layers, &Spec::layers, 1},
      {"model.hidden", &Choice::hidden, &Spec::hidden, 1},
      {"model.heads", &Choice::heads, &Spec::heads, 1},
      {"model.kv_heads", &Choice::kv_heads, &Spec::kv_heads, 1},
      {"model.head_dim", &Choice::head_dim, &Spec::head_dim},
      {"model.ffn_hidden", &Choice::ffn_hidden, &Spec::ffn_hidden},
      {"model.vocabulary", &Choice::vocabulary, &Spec::vocabulary, 1},
      {"model.sequence", &Choice::sequence, &Spec::sequence, 1},
      {"model.positions", &Choice::positions, &Spec::positions},
      {"model.token_types", &Choice::token_types, &Spec::token_types},
      {"model.experts", &Choice::experts, &Spec::experts},
      {"model.experts_per_token", &Choice::experts_per_token,
       &Spec::experts_per_token},
      {"model.expert_ffn_hidden", &Choice::expert_ffn_hidden,
       &Spec::expert_ffn_hidden},
      {"model.shared_ffn_hidden", &Choice::shared_ffn_hidden,
       &Spec::shared_ffn_hidden},
      {"model.first_dense_layers", &Choice::first_dense_layers,
       &Spec::first_dense_layers},
      {"model.q_lora_rank", &Choice::q_lora_rank, &Spec::q_lora_rank},
      {"model.kv_lora_rank", &Choice::kv_lora_rank, &Spec::kv_lora_rank},
      {"model.qk_nope_head_dim", &Choice::qk_nope_head_dim,
       &Spec::qk_nope_head_dim},
      {"model.qk_rope_head_dim", &Choice::qk_rope_head_dim,
       &Spec::qk_rope_head_dim},
      {"model.v_head_dim", &Choice::v_head_dim, &Spec::v_head_dim},
      {"model.mtp_layers", &Choice::mtp_layers, &Spec::mtp_layers},
      {"model.frozen_layers", &Choice::frozen_layers, &Spec::frozen_layers},
      {"model.lora_rank", &Choice::lora_rank, &Spec::lora_rank},
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
