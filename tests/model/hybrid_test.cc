// Models of several kinds of layers: counts of tensors by hand, published
// totals, work and memory of scans against loops over their chunks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/model/flops.h"
#include "sim/model/hf_config.h"
#include "sim/model/layer_kinds.h"
#include "sim/model/model.h"
#include "sim/model/ops.h"
#include "sim/model/stages.h"

namespace pipewright::hybrid_test {
namespace {

struct Tensor {
  double rows = 1, columns = 1;
};
double SumOf(const std::vector<Tensor>& tensors) {
  double sum = 0;
  for (const Tensor& tensor : tensors) sum += tensor.rows * tensor.columns;
  return sum;
}

// Tensors of a checkpoint as transformers names them (modeling_nemotron_h.py).
struct Nemotron {
  double hidden, heads, kv_heads, mamba_heads, state, width;
  double experts = 0, expert_width = 0, shared = 0, latent = 0, top_k = 6;

  double Of(char letter) const {
    const double inner = 64 * mamba_heads;
    const double shared_states = 2 * 8 * state;
    const double in = latent > 0 ? latent : hidden;
    switch (letter) {
      case 'M':
        return SumOf({{2 * inner + shared_states + mamba_heads, hidden},
                      {inner + shared_states, 4},
                      {inner + shared_states},
                      {mamba_heads},
                      {mamba_heads},
                      {mamba_heads},
                      {inner},
                      {hidden, inner},
                      {hidden}});
      case '*':
        return SumOf({{heads * 128, hidden},
                      {kv_heads * 128, hidden},
                      {kv_heads * 128, hidden},
                      {hidden, heads * 128},
                      {hidden}});
      case '-':
        return SumOf({{width, hidden}, {hidden, width}, {hidden}});
      default:
        return SumOf({{experts, hidden},
                      {experts * expert_width, in},
                      {experts * in, expert_width},
                      {shared, hidden},
                      {hidden, shared},
                      {latent, hidden},
                      {hidden, latent},
                      {hidden}});
    }
  }
  double Total(const std::string& letters) const {
    double sum = SumOf({{131072, hidden}, {131072, hidden}, {hidden}});
    for (const char letter : letters) sum += Of(letter);
    return sum;
  }
};

const char* const kNano =
    "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
const char* const kH8 = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
const char* const kH56 =
    "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-"
    "M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";

std::string Config(const std::string& letters, const Nemotron& sizes,
                   const std::string& more) {
  return absl::StrCat(
      R"({"model_type": "nemotron_h", "vocab_size": 131072, "head_dim": 128,)",
      R"("max_position_embeddings": 8192, "n_groups": 8, "conv_kernel": 4,)",
      R"("mamba_head_dim": 64, "chunk_size": 128, "num_hidden_layers": )",
      letters.size(), R"(, "hybrid_override_pattern": ")", letters,
      R"(", "hidden_size": )", sizes.hidden, R"(, "num_attention_heads": )",
      sizes.heads, R"(, "num_key_value_heads": )", sizes.kv_heads,
      R"(, "mamba_num_heads": )", sizes.mamba_heads, R"(, "ssm_state_size": )",
      sizes.state, R"(, "intermediate_size": )", sizes.width,
      R"(, "n_routed_experts": )", sizes.experts,
      R"(, "num_experts_per_tok": )", sizes.top_k,
      R"(, "moe_intermediate_size": )", sizes.expert_width,
      R"(, "moe_shared_expert_intermediate_size": )", sizes.shared, more, "}");
}

ModelSpec Read(const std::string& text) {
  const absl::StatusOr<ModelSpec> model =
      ModelFromHuggingFace(text, "config.json");
  INFO(text << "\n" << model.status());
  REQUIRE(model.ok());
  return *model;
}

struct Case {
  const char* preset;
  const char* letters;
  Nemotron sizes;
  double published = 0;  // tensors of the model card, huggingface.co
};
const Case kNemotrons[] = {
    {"nemotron-h-8b", kH8, {4096, 32, 8, 128, 128, 21504}},
    {"nemotron-h-56b", kH56, {8192, 64, 8, 256, 256, 32768}},
    // The router's corrections are not among them.
    {"nemotron-3-nano-30b-a3b",
     kNano,
     {2688, 32, 2, 64, 128, 1856, 128, 1856, 3712},
     31577937344},
};

TEST_CASE("hybrid: Nemotrons have the parameters of their tensors", "[model]") {
  for (const Case& each : kNemotrons) {
    INFO(each.preset);
    const ModelSpec read = Read(Config(each.letters, each.sizes, ""));
    const ModelSpec preset = FindModel(each.preset).value();
    const double counted = each.sizes.Total(each.letters);
    CHECK(read.Parameters() == counted);
    CHECK(preset.Parameters() == counted);
    CHECK(preset.kinds == read.kinds);
    CHECK(LettersOf(preset.kinds) == each.letters);
    if (each.published > 0) CHECK(counted == each.published);
  }
  // Nemotron 3 Super: experts in a latent width, multi-token prediction of
  // attention and experts (its config.json; 40 M, 40 E and 8 *).
  const Nemotron super = {4096, 32, 2, 128, 128, 0, 512, 2688, 5376, 1024, 22};
  std::string letters;
  for (int layer = 0; layer < 8; ++layer) letters += "MEMEMEMEME*";
  const ModelSpec read =
      Read(Config(letters, super,
                  R"(, "moe_latent_size": 1024, "num_nextn_predict_layers": 1,
          "mtp_hybrid_override_pattern": "*E")"));
  const double prediction =
      super.Of('*') + super.Of('E') + 2 * 4096.0 * 4096 + 3 * 4096;
  CHECK(read.MtpLayerParameters() == prediction);
  CHECK(read.Parameters() == super.Total(letters) + prediction);
  // Printed: 120.6 and 12.7 billion (NVIDIA, Nemotron 3 Super, section 2).
  CHECK(std::floor(super.Total(letters) / 1e8) == 1206);
  CHECK(std::floor(read.ActiveParameters() / 1e8) == 127);
}

TEST_CASE("hybrid: the lists of kinds say what the letters do", "[model]") {
  const Nemotron sizes = {256, 2, 2, 8, 16, 512, 8, 64, 64};
  const ModelSpec letters = Read(Config("M-*E", sizes, ""));
  std::string text = Config("M-*E", sizes, "");
  const std::string key = R"("hybrid_override_pattern": "M-*E")";
  const auto with = [&](const std::string& other) {
    std::string copy = text;
    return copy.replace(copy.find(key), key.size(), other);
  };
  for (const char* list :
       {R"("layers_block_type": ["mamba", "mlp", "attention", "moe"])",
        R"("layers_block_type": ["linear_attention", "mlp", "full_attention",
            "moe"])",
        R"("layer_types": ["mamba", "mlp", "attention", "moe"])"}) {
    INFO(list);
    CHECK(Read(with(list)).kinds == letters.kinds);
  }
  const auto says = [&](const std::string& other) {
    return std::string(
        ModelFromHuggingFace(with(other), "c").status().message());
  };
  CHECK(absl::StrContains(says(R"("hybrid_override_pattern": "M-*X")"),
                          "hybrid_override_pattern: \"M-*X\" is not allowed"));
  CHECK(absl::StrContains(says(R"("hybrid_override_pattern": "M-*")"),
                          "num_hidden_layers: 4 is not allowed; allowed: the 3 "
                          "layers of hybrid_override_pattern"));
  CHECK(absl::StrContains(says(R"("layer_types": ["mamba", "rwkv"])"),
                          "layers of the kind 'rwkv' (1 of 2) have no field"));
  CHECK(absl::StrContains(says(R"("a": 1)"), "needed for the kinds"));
}

// Published files, with the totals of the tensors of their model cards.
TEST_CASE("hybrid: other types have their published parameters", "[model]") {
  const ModelSpec next = Read(R"({"model_type": "qwen3_next",
      "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936,
      "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
      "intermediate_size": 5120, "max_position_embeddings": 262144,
      "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
      "linear_key_head_dim": 128, "linear_value_head_dim": 128,
      "linear_num_key_heads": 16, "linear_num_value_heads": 32,
      "num_experts": 512, "num_experts_per_tok": 10,
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
      "decoder_sparse_step": 1, "mlp_only_layers": [],
      "tie_word_embeddings": false})");
  // Qwen/Qwen3-Coder-Next, which has the same shape.
  CHECK(next.Parameters() == 79674391296.0);
  ModelSpec preset = FindModel("qwen3-next-80b-a3b").value();
  CHECK(preset.Parameters() == 79674391296.0);
  CHECK(preset.kinds == next.kinds);
  // Qwen/Qwen3-Next-80B-A3B-Instruct has the layer of prediction besides.
  preset.mtp_layers = 1;
  CHECK(preset.Parameters() == 81324862720.0);
  CHECK(std::floor(preset.ActiveParameters() / 1e9) == 3);

  // mistralai/Mamba-Codestral-7B-v0.1: no attention at all.
  const ModelSpec mamba = Read(R"({"model_type": "mamba2",
      "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 32768,
      "num_heads": 128, "head_dim": 64, "n_groups": 8, "state_size": 128,
      "conv_kernel": 4, "expand": 2, "chunk_size": 256, "use_bias": false,
      "use_conv_bias": true, "tie_word_embeddings": false})");
  CHECK(mamba.Parameters() == 7285403648.0);
  CHECK_FALSE(mamba.Has(Mixer::kAttention));

  // ibm-granite/granite-4.0-h-tiny: Mamba with experts in one layer.
  std::string types;
  for (int layer = 0; layer < 40; ++layer) {
    absl::StrAppend(&types, layer > 0 ? "," : "",
                    layer % 10 == 5 ? "\"attention\"" : "\"mamba\"");
  }
  const std::string granite = absl::StrCat(
      R"({"model_type": "granitemoehybrid", "hidden_size": 1536,
          "num_hidden_layers": 40, "vocab_size": 100352,
          "num_attention_heads": 12, "num_key_value_heads": 4,
          "intermediate_size": 512, "shared_intermediate_size": 1024,
          "num_local_experts": 64, "num_experts_per_tok": 6,
          "max_position_embeddings": 131072, "mamba_n_heads": 48,
          "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
          "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true,
          "mamba_proj_bias": false, "tie_word_embeddings": true,
          "position_embedding_type": "nope", "layer_types": [)",
      types, "]}");
  CHECK(Read(granite).Parameters() == 6939037248.0);

  // Bamba: its tensors (modeling_bamba.py).
  const ModelSpec bamba = Read(R"({"model_type": "bamba",
      "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
      "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 14336, "max_position_embeddings": 262144,
      "attn_layer_indices": [9, 18, 27], "mamba_n_heads": 128,
      "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
      "tie_word_embeddings": false})");
  const double mixer = SumOf({{2 * 8192 + 2 * 128 + 128, 4096},
                              {8192 + 2 * 128, 5},
                              {3 * 128 + 8192},
                              {4096, 8192}});
  const double attention = SumOf({{4096 + 2 * 1024, 4096}, {4096, 4096}});
  const double rest = SumOf({{3 * 14336, 4096}, {2, 4096}});
  CHECK(bamba.Parameters() ==
        29 * mixer + 3 * attention + 32 * rest + 2.0 * 128256 * 4096 + 4096);
  // ibm-ai-platform/Bamba-9B-v1: 9.78 B.
  CHECK(std::floor(bamba.Parameters() / 1e7 + 0.5) == 978);
}

TEST_CASE("hybrid: parts of hybrid types without a field are named",
          "[model]") {
  const auto says = [](const char* type) {
    return std::string(
        ModelFromHuggingFace(absl::StrCat(R"({"model_type": ")", type, R"("})"),
                             "c.json")
            .status()
            .message());
  };
  CHECK(absl::StrContains(says("falcon_h1"),
                          "attention and Mamba beside each other in one layer "
                          "have no field in a model"));
  CHECK(absl::StrContains(says("zamba2"), "that layers share have no field"));
  CHECK(absl::StrContains(says("jamba"), "Mamba layers of the first kind"));
  CHECK(absl::StrContains(says("kimi_linear"), "Kimi delta attention"));
}

TEST_CASE("hybrid: a pattern is read by its letters", "[model]") {
  const auto letters = [](const char* text, bool has_mla = false) {
    const auto kinds = LayerKindsOf(text, has_mla);
    return kinds.ok() ? LettersOf(*kinds)
                      : std::string(kinds.status().message());
  };
  CHECK(letters("M-M*-E") == "M-M*-E");
  CHECK(letters("2[3(GE)(*E)]") == "(GE)(GE)(GE)(*E)(GE)(GE)(GE)(*E)");
  CHECK(letters("2M3-") == "MM---");
  CHECK(letters("M+", true) == "M*");
  CHECK(absl::StrContains(letters("MX"), "at position 2, 'X'; allowed: M (M"));
  CHECK(absl::StrContains(letters("M*", true), "+ with latent attention"));
  CHECK(absl::StrContains(letters("M+"), "* without model.kv_lora_rank"));
  CHECK(absl::StrContains(letters("M-|M-"), "strategy.layers has the stages"));
  CHECK(absl::StrContains(letters("M/*E"), "model.mtp_layers"));
  CHECK(absl::StrContains(letters("D"), "sparse attention"));
  CHECK(absl::StrContains(letters("(M"), "at position 3, its end"));
  CHECK(absl::StrContains(letters("(MM)"), "at position 3, 'M'"));
  CHECK(absl::StrContains(letters("2[M"), "a ']'"));
  CHECK(absl::StrContains(letters("M]"), "a '[' before it"));
  CHECK(absl::StrContains(letters(""), "a letter at least"));
  CHECK(absl::StrContains(letters("3"), "at position 2, its end"));
  CHECK(absl::StrContains(letters("99999[99999M]"), "at most 100000 layers"));
}

TrainingSpec Sample(int64_t sequence) {
  TrainingSpec training;
  training.sequence = sequence;
  return training;
}

const ModelOp& Find(const std::vector<ModelOp>& ops, const std::string& name) {
  const auto found =
      std::find_if(ops.begin(), ops.end(),
                   [&](const ModelOp& op) { return op.name == name; });
  INFO(name);
  REQUIRE(found != ops.end());
  return *found;
}

// Multiply-adds of the chunked form of Mamba-2 (arXiv 2405.21060, listing 1),
// counted one by one over a chunk, two FLOPs each.
TEST_CASE("hybrid: a Mamba scan does the products of its chunks", "[model]") {
  ModelSpec model = FindModel("nemotron-h-8b").value();
  const int64_t chunk = 128;
  const auto groups = static_cast<double>(model.mamba_groups);
  const auto heads = static_cast<double>(model.mamba_heads);
  const auto width = static_cast<double>(model.mamba_head_dim);
  const auto state = static_cast<double>(model.mamba_state);
  double products = 0;
  for (int64_t later = 0; later < chunk; ++later) {
    for (int64_t earlier = 0; earlier <= later; ++earlier) {
      products += groups * state;  // C times B
      products += heads * width;   // times the input
    }
    products += heads * width * state;  // into the state of the chunk
    products += heads * width * state;  // out of the state before it
  }
  const std::vector<ModelOp> ops =
      BlockOps(model, Sample(8192), BlockKind::kDenseLayer, 0);
  const ModelOp& scan = Find(ops, "mamba scan");
  const double counted = 2 * products * 8192 / static_cast<double>(chunk);
  CHECK(scan.Work(OpPass::kForward).flops == Approx(counted).epsilon(0.01));
  // More chunks have more states and fewer products of tokens.
  model.scan_chunk = 64;
  const std::vector<ModelOp> shorter =
      BlockOps(model, Sample(8192), BlockKind::kDenseLayer, 0);
  CHECK(Find(shorter, "mamba scan").Work(OpPass::kForward).flops <
        scan.Work(OpPass::kForward).flops);
  CHECK(Find(shorter, "mamba scan").forward_workspace > scan.forward_workspace);
}

// The recurrence token by token does as much work as states take (arXiv
// 2412.06464, equation 10): S (I - k k^T) + v k^T, and q S.
TEST_CASE("hybrid: a gated delta scan is work of its states and chunks",
          "[model]") {
  const ModelSpec model = FindModel("qwen3-next-80b-a3b").value();
  const std::vector<ModelOp> ops =
      BlockOps(model, Sample(4096), BlockKind::kExpertLayer, 0);
  const ModelOp& scan = Find(ops, "delta scan");
  const double heads = 32;
  const double key = 128;
  const double value = 128;
  const int64_t chunk = 64;
  double products = 0;
  for (int64_t later = 0; later < chunk; ++later) {
    products += 3 * key * value;  // taken from, put into, read of the state
    for (int64_t earlier = 0; earlier < later; ++earlier) {
      products += 2 * key;      // keys times keys, queries times keys
      products += key + value;  // the inverse times both
      products += value;        // times the new values
      products += static_cast<double>(later - earlier);  // the inverse
    }
  }
  const double counted =
      2 * heads * products * 4096 / static_cast<double>(chunk);
  CHECK(scan.Work(OpPass::kForward).flops == Approx(counted).epsilon(0.02));
}

// Tensors that the kernels' autograd functions keep: the input of the norm and
// of both projections, what the first one gives, and what the scan gives.
TEST_CASE("hybrid: a Mamba layer keeps its tensors until the backward",
          "[model]") {
  const ModelSpec model = FindModel("nemotron-h-8b").value();
  const double tokens = 4096;
  for (const int tp : {1, 2, 8}) {
    TrainingSpec training = Sample(4096);
    training.tp = tp;
    training.sequence_parallel = tp > 1;
    double kept = 0;
    double parameters = 0;
    for (const ModelOp& op :
         BlockOps(model, training, BlockKind::kDenseLayer, 0)) {
      kept += op.saved_until_backward + op.saved_until_weight;
      parameters += op.parameters;
    }
    const double projected = 2 * 8192 + 2 * 8 * 128 + 128;
    const double inner = (projected + 8192 + 8192) / tp;
    CHECK(kept == 2 * tokens * (2 * 4096.0 / tp + inner));
    // All but the norm in front is split.
    CHECK(parameters == (kNemotrons[0].sizes.Of('M') - 4096) / tp + 4096);
  }
}

TEST_CASE("hybrid: degrees divide heads and groups of scans", "[model]") {
  const ModelSpec nemotron = FindModel("nemotron-h-8b").value();
  const ModelSpec next = FindModel("qwen3-next-80b-a3b").value();
  const auto says = [](const ModelSpec& model, int tp, int cp, int slices = 1) {
    TrainingSpec training = Sample(8192);
    training.tp = tp;
    training.cp = cp;
    training.slices = slices;
    return std::string(CheckTraining(model, training, 1).message());
  };
  CHECK(says(nemotron, 8, 1).empty());
  CHECK(absl::StrContains(says(nemotron, 16, 1),
                          "model.mamba_groups = 8, which it must divide"));
  CHECK(says(nemotron, 2, 4).empty());
  // Two groups a device, each on two devices of the context.
  CHECK(says(nemotron, 4, 4).empty());
  CHECK(absl::StrContains(says(nemotron, 1, 3 * 64),
                          "strategy.cp: 192 is not allowed"));
  CHECK(says(next, 2, 8).empty());
  CHECK(absl::StrContains(says(next, 2, 16), "model.delta_key_heads / tp = 8"));
  CHECK(absl::StrContains(says(nemotron, 1, 1, 2),
                          "no framework passes their states"));
  ModelSpec odd = nemotron;
  odd.mamba_groups = 3;
  CHECK(absl::StrContains(CheckModel(odd).message(),
                          "model.mamba_groups: 3 is not allowed"));
  odd = nemotron;
  odd.layers = 60;
  CHECK(absl::StrContains(CheckModel(odd).message(),
                          "the 52 layers of model.pattern"));
}

// Heads are dealt out, so that a device has as much work and keeps as much.
TEST_CASE("hybrid: context parallelism deals the heads out", "[model]") {
  const ModelSpec model = FindModel("nemotron-h-8b").value();
  TrainingSpec alone = Sample(8192);
  TrainingSpec dealt = Sample(8192);
  dealt.cp = 8;
  const auto ops = [&](const TrainingSpec& training) {
    return BlockOps(model, training, BlockKind::kDenseLayer, 0);
  };
  const std::vector<ModelOp> whole = ops(alone);
  const std::vector<ModelOp> parts = ops(dealt);
  REQUIRE(whole.size() == parts.size());
  for (size_t index = 0; index < whole.size(); ++index) {
    CHECK(parts[index].parameters == whole[index].parameters);
    CHECK(8 * parts[index].Work(OpPass::kForward).flops ==
          Approx(whole[index].Work(OpPass::kForward).flops));
  }
  // What is projected goes out, what is normed comes back.
  double sent = 0;
  for (const ModelOp& op : parts) {
    for (const OpComm& comm : op.comms) {
      CHECK(comm.kind == CommKind::kAllToAll);
      if (comm.pass == OpPass::kForward) sent += comm.bytes;
    }
  }
  CHECK(sent == 2 * 1024.0 * (2 * 8192 + 2 * 8 * 128 + 128 + 8192));
}

TEST_CASE("hybrid: stages hold the layers of the pattern", "[model]") {
  const ModelSpec model = FindModel("nemotron-h-8b").value();
  const TrainingSpec training = Sample(8192);
  const auto layout = LayoutFromCounts(model, training, {8, 18, 26});
  REQUIRE(layout.ok());
  CHECK(layout->ToString() ==
        "embedding, M-M-M-M*\n-M-M-M-M-M*-M-M-M-\n"
        "M-M*-M-M-M-M-M*-M-M-M-M-M-, head\n");
  const ModelSpec next = FindModel("qwen3-next-80b-a3b").value();
  const auto mixed = LayoutFromCounts(next, training, {4, 44});
  REQUIRE(mixed.ok());
  CHECK(absl::StartsWith(mixed->ToString(), "embedding, (GE)(GE)(GE)(*E)\n"));

  // Balanced over chunks of a rank: no rank is further above the mean than the
  // largest layer weighs; an even split of the same layers is worse.
  const Inventory inventory(model, training);
  const auto weight = [&](BlockKind kind, int64_t layer) {
    double flops = 0;
    for (const ModelOp& op : inventory.Ops(kind, layer)) {
      for (const OpWork& work : op.work) flops += work.flops;
    }
    return flops;
  };
  for (const std::vector<int>& ranks :
       {std::vector<int>{0, 1, 2, 3}, std::vector<int>{0, 1, 0, 1}}) {
    const auto most = [&](const StageLayout& stages) {
      std::map<int, double> sums;
      double largest = 0;
      for (size_t stage = 0; stage < stages.stages.size(); ++stage) {
        for (const StageBlock& block : stages.stages[stage]) {
          sums[ranks[stage]] += static_cast<double>(block.count) *
                                weight(block.kind, block.first_layer);
        }
      }
      for (const auto& [rank, sum] : sums) largest = std::max(largest, sum);
      return largest;
    };
    const StageLayout balanced = BalancedLayout(model, training, ranks, weight);
    const double even = most(*EvenLayout(model, training, 4, 1));
    CHECK(most(balanced) < even);
    double all = 0;
    double heaviest = 0;
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      const double own = weight(BlockKind::kDenseLayer, layer);
      all += own;
      heaviest = std::max(heaviest, own);
    }
    const double ends = weight(BlockKind::kHead, 0);
    const double mean = (all + ends) / (1 + ranks[3]);
    CHECK(most(balanced) <= mean + heaviest);
  }
}

// 6 FLOPs a parameter and token of every product with weights, and the rest of
// mixers beside it (PaLM's count, arXiv 2204.02311, appendix B).
TEST_CASE("hybrid: the work of a token is that of its products", "[model]") {
  const ModelSpec model = FindModel("nemotron-h-8b").value();
  const double counted = ModelFlopsPerToken(model, 8192, true);
  const double products =
      model.Parameters() - 131072.0 * 4096;  // all but the table of words
  const double attention = 4 * 6.0 * 8192 * 32 * 128;  // half is masked
  const double scans = 24 * 3.0 * (128 * (1024 + 8192) + 4.0 * 8192 * 128);
  CHECK(counted == Approx(6 * products + attention + scans).epsilon(0.002));
}

TEST_CASE("hybrid: a gate of attention is as wide as the queries", "[model]") {
  ModelSpec gated = FindModel("llama3-8b").value();
  const double plain = gated.LayerParameters(0);
  gated.attention_gate = true;
  CHECK(gated.LayerParameters(0) - plain == 4096.0 * 4096);
  TrainingSpec training = Sample(4096);
  const auto kept = [&](const ModelSpec& model) {
    double bytes = 0;
    double parameters = 0;
    for (const ModelOp& op :
         BlockOps(model, training, BlockKind::kDenseLayer, 0)) {
      bytes += op.saved_until_backward + op.saved_until_weight;
      parameters += op.parameters;
    }
    CHECK(parameters == model.LayerParameters(0));
    return bytes;
  };
  // The gate, and the gated values beside the attention's own.
  CHECK(kept(gated) - kept(FindModel("llama3-8b").value()) ==
        2 * 2 * 4096.0 * 4096);
}

}  // namespace
}  // namespace pipewright::hybrid_test
