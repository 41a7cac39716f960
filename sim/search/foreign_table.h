// Which argument of Megatron-LM is which field; docs/plan.md says the same with
// sources. For sim/search only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/model.h"

namespace pipewright {

// Largest degree, number of layers and number of samples.
inline constexpr int64_t kMostForeignNumber = 1 << 20;

// A number of the model.
struct ForeignModelRow {
  const char* flag;  // without dashes
  const char* path;
  int64_t ModelSpec::*member;
};

inline const std::vector<ForeignModelRow>& ForeignModelRows() {
  static const std::vector<ForeignModelRow> rows = {
      {"num-layers", "model.layers", &ModelSpec::layers},
      {"hidden-size", "model.hidden", &ModelSpec::hidden},
      {"num-attention-heads", "model.heads", &ModelSpec::heads},
      {"num-query-groups", "model.kv_heads", &ModelSpec::kv_heads},
      {"kv-channels", "model.head_dim", &ModelSpec::head_dim},
      {"ffn-hidden-size", "model.ffn_hidden", &ModelSpec::ffn_hidden},
      {"vocab-size", "model.vocabulary", &ModelSpec::vocabulary},
      {"num-experts", "model.experts", &ModelSpec::experts},
      {"moe-router-topk", "model.experts_per_token",
       &ModelSpec::experts_per_token},
      {"moe-ffn-hidden-size", "model.expert_ffn_hidden",
       &ModelSpec::expert_ffn_hidden},
      {"moe-shared-expert-intermediate-size", "model.shared_ffn_hidden",
       &ModelSpec::shared_ffn_hidden},
      {"q-lora-rank", "model.q_lora_rank", &ModelSpec::q_lora_rank},
      {"kv-lora-rank", "model.kv_lora_rank", &ModelSpec::kv_lora_rank},
      {"qk-head-dim", "model.qk_nope_head_dim", &ModelSpec::qk_nope_head_dim},
      {"qk-pos-emb-head-dim", "model.qk_rope_head_dim",
       &ModelSpec::qk_rope_head_dim},
      {"v-head-dim", "model.v_head_dim", &ModelSpec::v_head_dim},
      {"mtp-num-layers", "model.mtp_layers", &ModelSpec::mtp_layers},
  };
  return rows;
}

struct ForeignDegreeRow {
  const char* flag;
  const char* path;
};
// 1 where they are missing.
inline const std::vector<ForeignDegreeRow>& ForeignDegreeRows() {
  static const std::vector<ForeignDegreeRow> rows = {
      {"tensor-model-parallel-size", "strategy.tp"},
      {"pipeline-model-parallel-size", "strategy.pp"},
      {"context-parallel-size", "strategy.cp"},
      {"micro-batch-size", "strategy.microbatch_size"},
  };
  return rows;
}

// torchtitan: flavor -> preset of ours.
struct TitanModelRow {
  const char* name;
  const char* flavor;
  const char* preset;
};
inline const std::vector<TitanModelRow>& TitanModelRows() {
  static const std::vector<TitanModelRow> rows = {
      {"llama3", "8B", "llama3-8b"},
      {"llama3", "70B", "llama3-70b"},
      {"llama3", "405B", "llama3-405b"},
  };
  return rows;
}

// torchtitan's names of schedules are PyTorch's; ours that have one.
inline constexpr char kCommentMark[] = "# pipewright: ";

}  // namespace pipewright
