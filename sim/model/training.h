// How a model is trained, as far as it decides what one device computes,
// keeps and exchanges: degrees of parallelism, precision, recomputation. No
// schedule, no devices, no times.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "sim/model/execution.h"
#include "sim/model/model.h"
#include "sim/model/optimizer.h"

namespace pipewright {

// What the backward computes again instead of keeping it.
enum class Recompute : uint8_t {
  kNone,
  // The modules of TrainingSpec::recompute_modules.
  kSelective,
  // Outputs of norms and of the activation function (and dropout): what is
  // cheap and large (PipeOffload, arXiv 2503.01328).
  kNormActivation,
  // All but attention and every second product of a layer (torchtitan,
  // torchtitan/parallelisms/parallelize_llama.py, _save_list: outputs of
  // attention and of the first, third, ... matrix product are kept).
  kOpSelective,
  // The whole layer from its input.
  kFull,
};

// Modules of a layer that Recompute::kSelective runs again, a bit each
// (Megatron-Core, megatron/core/transformer/transformer_config.py,
// recompute_modules). What is kept of each is its input.
enum class RecomputeModule : uint8_t {
  // Scores, softmax, dropout and their product with the values (Korthikanti et
  // al., arXiv 2205.05198, section 5). With flash attention little is given
  // back, and it runs again all the same.
  kCoreAttention = 1,
  kExpertActivation = 2,
  // Norms that are modules of their own: of latent attention and in front of
  // experts. Transformer Engine fuses the others into the product behind them.
  kNorms = 4,
  kLatentUp = 8,  // from compressed to whole queries, keys and values
  kDense = 16,    // feed-forward part of a dense layer, its norm included
  kExperts = 32,  // router, exchanges, experts, shared experts
  kSharedExperts = 64,
};

// Type of the operands of linear layers; the rest is in bf16 (fp16 counts
// alike). precision.h has what each means.
enum class Precision : uint8_t {
  kBf16,
  kFp8,            // a scale a tensor, known from steps before (delayed)
  kFp8Tensorwise,  // a scale a tensor, found by a pass of its own (current)
  kFp8Block,       // a scale for 128 values, for 128 x 128 of weights
  kMxfp8,          // a scale for 32 values
  kNvfp4,          // 4 bit, a scale for 16 values and one a tensor
};

// What a stage has for each microbatch of a step (PyTorch's pipelining): what
// it receives; besides, the last one the logits of all; besides, each its
// outputs of all.
enum class StageBuffers : uint8_t { kNone, kReceived, kLogits, kOutputs };

// Where embedding and output head are.
enum class VocabularyPlacement : uint8_t {
  kEnds,    // first and last stage
  kSpread,  // an equal part of both on every rank (vocabulary parallelism)
};

// Weights that are sharded and gathered layer by layer.
struct ShardedLayers {
  int shard_group = 0;    // replicas that shards are over (HSDP); 0: all
  int near_group = 0;     // that keep a copy together (hpZ); 0: none
  bool kept = false;      // from forward to backward
  bool is_fsdp2 = false;  // PyTorch's buffers
  // Pulled and pushed (odc): bytes of a parameter on its way, and devices of a
  // node, where there are several nodes.
  bool one_sided = false;
  double gather_bytes = 4;
  int devices_of_node = 0;
  friend bool operator==(const ShardedLayers&, const ShardedLayers&) = default;
};

// Which kept activations of a layer an O copies: what the layer begins from,
// those of its attention, those behind it. What is kept outside of layers goes
// with `input`.
struct OffloadedTensors {
  bool input = true;
  bool attention = true;
  bool mlp = true;

  bool all() const { return input && attention && mlp; }
  friend bool operator==(const OffloadedTensors&,
                         const OffloadedTensors&) = default;
};

struct TrainingSpec {
  int tp = 1;                      // tensor parallelism
  bool sequence_parallel = false;  // norms and residuals split over tp too
  // Without sequence parallelism every device of a tensor-parallel group holds
  // the same boundary activations. Each sends 1/tp of them, and the receivers
  // gather (arXiv 2104.04473, section 4.1).
  bool scatter_gather = false;
  int cp = 1;  // context parallelism: sequence over cp
  int ep = 1;  // expert parallelism, within dp * cp * tp / etp
  int dp = 1;  // data-parallel replicas
  // ZeRO stage: 1 shards the optimizer over dp * cp, 2 gradients too, 3
  // weights too. Experts are sharded over dp * cp * tp / (ep * etp).
  int zero = 0;
  int microbatch_size = 1;  // samples
  int64_t sequence = 0;     // tokens of a sample, before cp and slices
  int slices = 1;           // that the sequence is cut into
  Recompute recompute = Recompute::kNone;
  uint8_t recompute_modules =
      static_cast<uint8_t>(RecomputeModule::kCoreAttention);
  // Only the first so many layers of each stage (Megatron's method "block"); 0:
  // all.
  int recompute_layers = 0;
  // N: only the Nth layer of each stage, the 2 Nth, and so on (torchtitan's
  // selective_ac_option).
  int recompute_every = 1;
  // True for the chunks of a rank that `recompute` holds for; empty: for all.
  std::vector<bool> recompute_chunks;
  OffloadedTensors offloaded;
  // Fused attention that never stores the scores.
  bool flash_attention = true;
  // Cross-entropy that overwrites the logits in their own precision, against
  // a copy in fp32.
  bool fused_cross_entropy = true;
  // Adam as one kernel, against one for each of its operations (PyTorch's
  // foreach).
  bool fused_optimizer = true;
  // Without fusion: as plain PyTorch computes it, in fp32 with a copy for each
  // step of it, against Megatron's, which works in place.
  bool plain_cross_entropy = false;
  // Linear layers keep the whole input that sequence parallelism gathered until
  // W, against their own part, which W gathers again (PyTorch).
  bool keeps_gathered = false;
  StageBuffers stage_buffers = StageBuffers::kNone;
  // Recomputation of a layer stops when the backward has what it needs
  // (torch.utils.checkpoint, early_stop).
  bool stops_early = false;
  // Gradients of sharded layers are reduced once a step, and until then kept
  // whole (FSDP2 under a pipeline).
  bool whole_gradients = false;
  Precision precision = Precision::kBf16;
  // Bytes of a parameter: weight, gradient, master weight, both moments
  // together (mixed-precision Adam: 2 + 4 + 4 + 8).
  double weight_bytes = 2;
  // Linear layers' weights in 8 or 4 bit stay from one microbatch to the next,
  // both ways round, beside those of weight_bytes (Transformer Engine).
  bool keeps_narrow_weights = false;
  // They are all that there is of these weights (Megatron-LM's
  // fp8_param_gather).
  bool narrow_weights = false;
  // Products of 8 bit read a weight with one scale either way round, so that
  // one copy is enough (Blackwell).
  bool reads_both_ways = false;
  double gradient_bytes = 4;
  double master_bytes = 4;
  double moment_bytes = 8;
  OptimizerRule optimizer;
  VocabularyPlacement vocabulary = VocabularyPlacement::kEnds;
  // A stage behind the first that has multi-token prediction has a table of
  // words of its own (Megatron-LM).
  bool prediction_table = true;
  ShardedLayers sharded;
  Execution execution;

  bool RunsAgain(RecomputeModule module) const {
    return (recompute_modules & static_cast<uint8_t>(module)) != 0;
  }
  // Number of the `count` layers behind the first `before` of a stage that
  // `recompute` holds for. Parts of a layer count as such.
  double RecomputedLayers(double before, double count) const {
    if (recompute_layers > 0) {
      return std::clamp(recompute_layers - before, 0.0, count);
    }
    if (recompute_every == 1) return count;
    return std::floor((before + count) / recompute_every) -
           std::floor(before / recompute_every);
  }

  bool gathers_hops() const {
    return scatter_gather && tp > 1 && !sequence_parallel;
  }
  // Devices of one pipeline rank.
  int devices_per_rank() const { return tp * cp; }
  // Over how many devices dense parameters and those of experts are sharded
  // by ZeRO.
  int shards() const {
    const int replicas = sharded.shard_group > 0 ? sharded.shard_group : dp;
    // Pulls and pushes go from replica to replica of the same part of a
    // context.
    return sharded.one_sided ? replicas : replicas * cp;
  }
  int expert_shards() const {
    return std::max(1, shards() * tp / (ep * etp()));
  }
  // Part of an expert's bytes that a ring of all shards() takes as long for as
  // one of those that share the expert for all of them.
  double expert_share() const {
    return shards() <= 1 ? 1
                         : (1 - 1.0 / expert_shards()) / (1 - 1.0 / shards());
  }
  // Tensor parallelism of experts.
  int etp() const { return execution.etp > 0 ? execution.etp : tp; }
  // Tokens of one slice of a microbatch on one device, before tp.
  double tokens() const {
    return static_cast<double>(microbatch_size) *
           static_cast<double>(sequence) / (static_cast<double>(cp) * slices);
  }
  friend bool operator==(const TrainingSpec&, const TrainingSpec&) = default;
};

// heads, kv_heads (where above tp), ffn_hidden, vocabulary (padded) against
// tp; heads and groups of Mamba-2 and key heads of gated delta against tp and
// cp; experts against ep, their width against etp; etp against tp, ep against
// dp * cp * tp / etp; expert_load against ep; heads against tp * cp where they
// are exchanged; sequence against tp (where sequence_parallel), cp and slices;
// recompute_chunks against vpp. Error: kInvalidArgument naming
// "strategy.FIELD", its value and the nearest values that work.
absl::Status CheckTraining(const ModelSpec& model, const TrainingSpec& training,
                           int vpp);

// Do the sizes of the model take that many tensor ranks, experts apart?
bool TensorFits(const ModelSpec& model, int64_t tp);

}  // namespace pipewright
