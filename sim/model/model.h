// The shape of a transformer and what follows from it alone: its parameters.
// No parallelism, no times, no activations (see training.h, ops.h).
//
// A layer: attention (queries, keys, values, output; fewer kv_heads than
// heads: grouped queries; kv_lora_rank: multi-head latent attention), a
// feed-forward part (two matrices, three where gated; or a router with
// experts), two norms; or, by `kinds`, one of both alone, or Mamba-2 or gated
// delta in place of attention. Around the layers: the embedding, a last norm,
// the output head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// What mixes the tokens of a layer.
enum class Mixer : uint8_t {
  kAttention,
  kMamba,  // Mamba-2 (arXiv 2405.21060, section 7)
  kDelta,  // gated delta (Gated DeltaNet, arXiv 2412.06464, as Qwen3-Next has)
  kNone,
};
enum class FeedForward : uint8_t { kDense, kExperts, kNone };
struct LayerKind {
  Mixer mixer = Mixer::kAttention;
  FeedForward feed_forward = FeedForward::kDense;

  int parts() const {
    return (mixer != Mixer::kNone ? 1 : 0) +
           (feed_forward != FeedForward::kNone ? 1 : 0);
  }
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

struct ModelSpec {
  std::string name;
  std::string source;  // where the numbers below are from
  // What its file says and no number below; for the report.
  std::vector<std::string> notes;
  int64_t layers = 0;  // without multi-token-prediction layers
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t ffn_hidden = 0;
  bool gated = false;  // SwiGLU and its like: a third matrix
  int64_t vocabulary = 0;
  int64_t sequence = 0;  // tokens of a sample
  bool tied_embeddings = false;
  bool causal = true;
  bool dropout = false;  // masks of one byte an element are kept

  // What one-vector parameters there are.
  bool layer_norm = false;       // weight and bias, against RMSNorm's weight
  bool qkv_bias = false;         // for queries, keys and values
  bool projection_bias = false;  // for the projection behind attention
  bool bias = false;             // for every other linear layer of a block
  bool qk_norm = false;          // norms of one head_dim on queries and keys
  bool qk_norm_whole = false;    // with qk_norm: over all heads together
  bool qk_norm_weights = true;   // with qk_norm: Llama 4's have none
  bool pre_norms = true;         // in front of attention and feed-forward part
  bool post_norms = false;       // behind each, before the residual (Gemma)
  bool attention_sinks = false;  // a value a head in each softmax (GPT-OSS)
  bool final_norm = true;        // behind the last layer
  int64_t positions = 0;         // rows of a learned position table
  int64_t token_types = 0;       // BERT: rows of the segment table
  bool embedding_norm = false;   // BERT
  bool pooler = false;           // BERT: a hidden x hidden layer with bias
  // BERT's head: hidden x hidden with bias, a norm and a bias of vocabulary.
  bool masked_lm_head = false;

  // Mixture of experts; experts == 0: dense.
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t expert_ffn_hidden = 0;
  int64_t shared_ffn_hidden = 0;  // all shared experts together
  int64_t first_dense_layers = 0;
  // Behind those, every so many layers one has experts, the first one too; 0
  // and 1: all have.
  int64_t expert_layer_every = 0;
  // Width that tokens are projected to in front of the experts, and back from
  // behind them (Nemotron 3); 0: experts are as wide as the residual stream.
  int64_t expert_latent = 0;
  bool router_bias = false;
  bool expert_bias = false;  // in both products of an expert
  bool shared_gate = false;  // hidden values that weigh the shared experts

  // Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1);
  // kv_lora_rank == 0: none. heads query heads of qk_nope + qk_rope.
  int64_t q_lora_rank = 0;  // 0: queries are not compressed
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;

  bool attention_gate = false;  // queries' projection makes it (Qwen3-Next)
  // Width of a head that the rotary embedding turns; -1: all of it.
  int64_t rotary_dim = -1;

  // Kinds of the layers; empty: all have attention, and experts where
  // IsExpertLayer says so.
  std::vector<LayerKind> kinds;
  // Mamba-2: one projection to gate, input (heads * head_dim each), both of
  // state for each group and a step for each head; a convolution over all but
  // gate and steps; a gated norm; a projection back.
  int64_t mamba_heads = 0;
  int64_t mamba_head_dim = 0;
  int64_t mamba_groups = 0;
  int64_t mamba_state = 0;
  bool mamba_bias = false;       // in both projections
  bool mamba_conv_bias = false;  // in the convolution
  // Gated delta: the same of queries and keys (key heads), values and gate
  // (value heads), and two numbers for each value head.
  int64_t delta_key_heads = 0;
  int64_t delta_value_heads = 0;
  int64_t delta_key_dim = 0;
  int64_t delta_value_dim = 0;
  int64_t conv_kernel = 4;  // tokens that a convolution reaches over
  int64_t scan_chunk = 0;   // tokens that a scan works on at once; 0: the usual

  // Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): a
  // further layer with a 2*hidden x hidden projection and three norms each;
  // embedding and head are shared.
  int64_t mtp_layers = 0;

  // Fine-tuning: the first `frozen_layers` layers and, with them, the
  // embedding have no W, no gradients, no optimizer state. lora_rank > 0: all
  // weights are frozen, and each linear layer of a block, or each that makes
  // queries, keys and values, has two trained matrices of that rank beside it.
  int64_t frozen_layers = 0;
  int64_t lora_rank = 0;
  bool lora_qkv_only = false;

  // Attention to the last `window` tokens alone; 0: to all before. With
  // full_attention_every = n every n-th layer attends to all (2: GPT-OSS, where
  // layers 1, 3, ... do; 0: none), and the first full_attention_first do.
  // chunked_window: to the beginning of their chunk of `window` tokens (Llama
  // 4).
  int64_t window = 0;
  int64_t full_attention_every = 0;
  int64_t full_attention_first = 0;
  bool chunked_window = false;

  // Tokens that a layer attends to; 0: all before.
  int64_t WindowOf(int64_t layer) const {
    const bool full =
        full_attention_every > 0 && (layer + 1) % full_attention_every == 0;
    return full || layer < full_attention_first ? 0 : window;
  }
  // One behind the last is of multi-token prediction.
  LayerKind KindOf(int64_t layer) const {
    if (layer < static_cast<int64_t>(kinds.size())) return kinds[layer];
    const bool is_behind = layer >= layers || !kinds.empty();
    return {Mixer::kAttention,
            (is_behind ? has_experts() : IsExpertLayer(layer))
                ? FeedForward::kExperts
                : FeedForward::kDense};
  }
  // Layers of a kind with one number have the same operations.
  int64_t ClassOf(int64_t layer) const {
    const int64_t common =
        (layer < frozen_layers ? 1 : 0) + (WindowOf(layer) > 0 ? 2 : 0);
    if (kinds.empty()) return common;
    const LayerKind kind = KindOf(layer);
    return common + 4 * static_cast<int64_t>(kind.mixer) +
           16 * static_cast<int64_t>(kind.feed_forward);
  }
  // Layers of a kind differ: some are frozen, some have a window, or their
  // parts are others.
  bool layers_differ() const {
    return frozen_layers > 0 || !kinds.empty() ||
           (window > 0 &&
            (full_attention_every > 1 || full_attention_first > 0));
  }
  // Does any layer, multi-token prediction included, have it?
  bool Has(Mixer mixer) const;
  // Do tokens pass a state on from chunk to chunk?
  bool has_scans() const { return Has(Mixer::kMamba) || Has(Mixer::kDelta); }
  // Width inside of Mamba-2, and of what its convolution works on.
  int64_t MambaWidth() const { return mamba_heads * mamba_head_dim; }
  int64_t MambaConvWidth() const {
    return MambaWidth() + 2 * mamba_groups * mamba_state;
  }
  int64_t DeltaKeyWidth() const { return delta_key_heads * delta_key_dim; }
  int64_t DeltaValueWidth() const {
    return delta_value_heads * delta_value_dim;
  }
  // Width of an expert's input and output.
  int64_t ExpertInput() const {
    return expert_latent > 0 ? expert_latent : hidden;
  }

  // Rank of adapters beside linear layers that do not make queries, keys and
  // values.
  int64_t OtherLoraRank() const { return lora_qkv_only ? 0 : lora_rank; }
  bool has_experts() const { return experts > 0; }
  bool has_mla() const { return kv_lora_rank > 0; }
  // Do query heads of a device share keys and values?
  bool HasKeyGroups(int tp) const {
    return !has_mla() && heads > std::max<int64_t>(tp, kv_heads);
  }
  int64_t HeadDim() const {
    if (head_dim > 0) return head_dim;
    return heads > 0 ? hidden / heads : 0;  // 0: there is no attention
  }
  // Width of one head's query or key, and of its value.
  int64_t QueryDim() const {
    return has_mla() ? qk_nope_head_dim + qk_rope_head_dim : HeadDim();
  }
  int64_t ValueDim() const { return has_mla() ? v_head_dim : HeadDim(); }
  // True for layers whose feed-forward part is experts.
  bool IsExpertLayer(int64_t layer) const {
    if (layer < static_cast<int64_t>(kinds.size())) {
      return kinds[layer].feed_forward == FeedForward::kExperts;
    }
    return has_experts() && layer >= first_dense_layers &&
           (expert_layer_every < 2 ||
            (layer - first_dense_layers) % expert_layer_every == 0);
  }
  // Without those of multi-token prediction, which all have experts if any has.
  int64_t ExpertLayers() const;
  bool has_dense_layers() const;

  // Parameters, LoRA's matrices included: beside queries, keys and values as
  // one linear layer, gate and up as one, and every other linear layer of a
  // block, but not beside the router and its experts (as Megatron Bridge's
  // LoRA by default). One layer; its kind is that of `layer`.
  double LayerParameters(int64_t layer) const;
  // All tables around the first layer: words, positions, segments, a norm.
  double EmbeddingParameters() const;
  // Last norm and what follows; without a table that is tied.
  double HeadParameters() const;
  // Parameters of one multi-token-prediction layer, its projection and norms.
  double MtpLayerParameters() const;
  // Parameters of the whole model, multi-token prediction included; tied
  // embeddings count once.
  double Parameters() const;
  // Those that one token meets in inference: of the experts,
  // experts_per_token and the shared ones; no multi-token prediction.
  double ActiveParameters() const;

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// Sizes at least 1, heads that divide hidden (or a head_dim), kv_heads that
// divide heads, experts_per_token <= experts, ... Error: kInvalidArgument
// naming "model.FIELD", its value and what is allowed.
absl::Status CheckModel(const ModelSpec& model);

// Sorted by name.
const std::vector<ModelSpec>& AllModels();
// Error: kInvalidArgument naming the nearest one.
absl::StatusOr<ModelSpec> FindModel(absl::string_view name);

}  // namespace pipewright
