// The models that are known by name. A row has what differs within its
// family; what the family shares is set once, above its rows.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/model/layer_kinds.h"
#include "sim/model/model.h"

namespace pipewright {
namespace {

// GPT-2's block (Radford et al. 2019, as in Megatron-LM): LayerNorm, biases
// everywhere, four times hidden, learned positions, tied embeddings, dropout.
ModelSpec Gpt(std::string name, std::string source, int64_t layers,
              int64_t hidden, int64_t heads, int64_t vocabulary,
              int64_t sequence) {
  ModelSpec model;
  model.name = std::move(name);
  model.source = std::move(source);
  model.layers = layers;
  model.hidden = hidden;
  model.heads = model.kv_heads = heads;
  model.ffn_hidden = 4 * hidden;
  model.vocabulary = vocabulary;
  model.sequence = model.positions = sequence;
  model.tied_embeddings = true;
  model.dropout = true;
  model.layer_norm = model.qkv_bias = model.bias = true;
  return model;
}

struct GptRow {
  const char* name;
  int64_t layers, hidden, heads;
};

void AddGpts(const char* source, int64_t vocabulary, int64_t sequence,
             const std::vector<GptRow>& rows, std::vector<ModelSpec>* models) {
  for (const GptRow& row : rows) {
    models->push_back(Gpt(row.name, source, row.layers, row.hidden, row.heads,
                          vocabulary, sequence));
  }
}

void AddGpts(std::vector<ModelSpec>* models) {
  AddGpts("Radford et al. 2019, table 2 (hidden, layers); openai/gpt-2 (heads)",
          50257, 1024,
          {{"gpt2", 12, 768, 12},
           {"gpt2-medium", 24, 1024, 16},
           {"gpt2-large", 36, 1280, 20},
           {"gpt2-xl", 48, 1600, 25}},
          models);
  AddGpts("Brown et al., arXiv 2005.14165, table 2.1; GPT-2's tokens", 50257,
          2048, {{"gpt3-175b", 96, 12288, 96}}, models);
  AddGpts("Narayanan et al., arXiv 2104.04473, table 1", 51200, 2048,
          {{"gpt-1.7b", 24, 2304, 24},
           {"gpt-3.6b", 30, 3072, 32},
           {"gpt-7.5b", 36, 4096, 32},
           {"gpt-18.4b", 40, 6144, 48},
           {"gpt-39.1b", 48, 8192, 64},
           {"gpt-76.1b", 60, 10240, 80},
           {"gpt-145.6b", 80, 12288, 96},
           {"gpt-310.1b", 96, 16384, 128},
           {"gpt-529.6b", 105, 20480, 128},
           {"gpt-1008b", 128, 25600, 160}},
          models);
  AddGpts("Korthikanti et al., arXiv 2205.05198, table 3", 51200, 2048,
          {{"gpt-22b", 48, 6144, 64},
           {"gpt-175b", 96, 12288, 96},
           {"gpt-530b", 105, 20480, 128},
           {"gpt-1t", 128, 25600, 160}},
          models);
  // Neither paper prints the vocabulary; 32000 gives every size it prints,
  // 50257 does not.
  AddGpts("Qi et al., arXiv 2401.10241, table 3; vocabulary from the sizes",
          32000, 1024,
          {{"gpt-1.5b", 22, 2304, 24},
           {"gpt-6.2b", 30, 4096, 32},
           {"gpt-14.6b", 46, 5120, 40},
           {"gpt-28.3b", 62, 6144, 48}},
          models);
  AddGpts(
      "Qi et al., arXiv 2405.15362, table of models; vocabulary from the "
      "sizes",
      32000, 1024,
      {{"gpt-9.6b", 30, 5120, 40},
       {"gpt-21b", 46, 6144, 48},
       {"gpt-38.5b", 62, 7168, 64},
       {"gpt-98.5b", 78, 10240, 80}},
      models);
}

ModelSpec GptTiny() {
  ModelSpec model;
  model.name = "gpt-tiny";
  model.source = "our own: runs anywhere in seconds";
  model.layers = 16;
  model.hidden = 256;
  model.heads = model.kv_heads = 4;
  model.ffn_hidden = 1024;
  model.vocabulary = 512;
  model.sequence = 128;
  return model;
}

// Both kinds of layers and a shared expert, as in DeepSeekMoE.
ModelSpec MoeTiny() {
  ModelSpec model = GptTiny();
  model.name = "moe-tiny";
  model.hidden = 128;
  model.kv_heads = 2;
  model.ffn_hidden = 512;
  model.gated = true;
  model.experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_hidden = 128;
  model.shared_ffn_hidden = 128;
  model.first_dense_layers = 1;
  return model;
}

// Llama's block: RMSNorm, SwiGLU, no biases, rotary positions.
ModelSpec Llama(std::string name, std::string source, int64_t layers,
                int64_t hidden, int64_t heads, int64_t kv_heads,
                int64_t ffn_hidden, int64_t vocabulary, int64_t sequence) {
  ModelSpec model;
  model.name = std::move(name);
  model.source = std::move(source);
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.ffn_hidden = ffn_hidden;
  model.gated = true;
  model.vocabulary = vocabulary;
  model.sequence = sequence;
  return model;
}

void AddLlamas(std::vector<ModelSpec>* models) {
  const char* llama2 =
      "Touvron et al., arXiv 2307.09288, table 1; meta-llama/Llama-2 "
      "config.json";
  models->push_back(
      Llama("llama2-7b", llama2, 32, 4096, 32, 32, 11008, 32000, 4096));
  models->push_back(
      Llama("llama2-13b", llama2, 40, 5120, 40, 40, 13824, 32000, 4096));
  models->push_back(
      Llama("llama2-70b", llama2, 80, 8192, 64, 8, 28672, 32000, 4096));
  const char* llama3 =
      "The Llama 3 Herd of Models, arXiv 2407.21783, table 3; sequence of "
      "section 3.4.1";
  models->push_back(
      Llama("llama3-8b", llama3, 32, 4096, 32, 8, 14336, 128256, 8192));
  models->push_back(
      Llama("llama3-70b", llama3, 80, 8192, 64, 8, 28672, 128256, 8192));
  models->push_back(
      Llama("llama3-405b", llama3, 126, 16384, 128, 8, 53248, 128256, 8192));
  models->push_back(Llama("mistral-7b",
                          "Jiang et al., arXiv 2310.06825, table 1", 32, 4096,
                          32, 8, 14336, 32000, 8192));
}

void AddQwens(std::vector<ModelSpec>* models) {
  const auto qwen25 = [&](const char* name, int64_t layers, int64_t hidden,
                          int64_t heads, int64_t kv_heads, int64_t ffn_hidden) {
    models->push_back(Llama(name,
                            "Qwen2.5, arXiv 2412.15115, table 1; "
                            "Qwen/Qwen2.5 config.json",
                            layers, hidden, heads, kv_heads, ffn_hidden, 152064,
                            4096));
    models->back().qkv_bias = true;
  };
  qwen25("qwen2.5-7b", 28, 3584, 28, 4, 18944);
  qwen25("qwen2.5-32b", 64, 5120, 40, 8, 27648);
  qwen25("qwen2.5-72b", 80, 8192, 64, 8, 29568);

  const auto qwen3 = [&](const char* name, int64_t layers, int64_t hidden,
                         int64_t heads, int64_t kv_heads, int64_t ffn_hidden,
                         int64_t expert_ffn_hidden) {
    models->push_back(Llama(name,
                            "Qwen3, arXiv 2505.09388, tables 1 and 2; "
                            "Qwen/Qwen3 config.json",
                            layers, hidden, heads, kv_heads, ffn_hidden, 151936,
                            4096));
    models->back().head_dim = 128;
    models->back().qk_norm = true;
    if (expert_ffn_hidden == 0) return;
    models->back().experts = 128;
    models->back().experts_per_token = 8;
    models->back().expert_ffn_hidden = expert_ffn_hidden;
  };
  qwen3("qwen3-8b", 36, 4096, 32, 8, 12288, 0);
  qwen3("qwen3-30b-a3b", 48, 2048, 32, 4, 6144, 768);
  qwen3("qwen3-235b-a22b", 94, 4096, 64, 4, 12288, 1536);
}

// Windows of 128 tokens in layers 0, 2, ...; sinks.
void AddGptOss(std::vector<ModelSpec>* models) {
  for (const auto& [name, layers, experts] :
       {std::tuple("gpt-oss-20b", 24, 32),
        std::tuple("gpt-oss-120b", 36, 128)}) {
    ModelSpec model = Llama(name, absl::StrCat("openai/", name, " config.json"),
                            layers, 2880, 64, 8, 2880, 201088, 4096);
    model.head_dim = 64;
    model.qkv_bias = model.projection_bias = true;
    model.experts = experts;
    model.experts_per_token = 4;
    model.expert_ffn_hidden = 2880;
    model.attention_sinks = model.router_bias = model.expert_bias = true;
    model.window = 128;
    model.full_attention_every = 2;
    models->push_back(std::move(model));
  }
}

void SetPattern(const char* letters, ModelSpec* model) {
  const absl::StatusOr<std::vector<LayerKind>> kinds =
      LayerKindsOf(letters, false);
  PW_CHECK(kinds.ok());
  model->kinds = *kinds;
  model->layers = static_cast<int64_t>(kinds->size());
}

// Mamba-2, attention without positions and two matrices with a squared ReLU
// between them, each a layer of its own.
ModelSpec Nemotron(const char* name, const char* source, const char* letters,
                   int64_t hidden, int64_t heads, int64_t kv_heads,
                   int64_t mamba_heads, int64_t mamba_state) {
  ModelSpec model =
      Llama(name, source, 0, hidden, heads, kv_heads, 0, 131072, 8192);
  model.gated = false;
  model.head_dim = 128;
  model.rotary_dim = 0;
  model.mamba_heads = mamba_heads;
  model.mamba_head_dim = 64;
  model.mamba_groups = 8;
  model.mamba_state = mamba_state;
  model.mamba_conv_bias = true;
  model.scan_chunk = 128;
  SetPattern(letters, &model);
  return model;
}

void AddNemotrons(std::vector<ModelSpec>* models) {
  const char* const bridge =
      "Nemotron-H, arXiv 2504.03624, tables 1 and 2; NVIDIA-NeMo/"
      "Megatron-Bridge 067f987d, recipes/nemotronh";
  models->push_back(Nemotron("nemotron-h-8b", bridge,
                             "3[M-]M*-4[M-]M*-4[M-]M*-4[M-]M*-5[M-]", 4096, 32,
                             8, 128, 128));
  models->back().ffn_hidden = 21504;
  models->push_back(Nemotron("nemotron-h-56b", bridge,
                             "3[M-]M*-8[4[M-]M*-]4[M-]M*-5[M-]", 8192, 64, 8,
                             256, 256));
  models->back().ffn_hidden = 32768;
  models->push_back(Nemotron(
      "nemotron-3-nano-30b-a3b",
      "arXiv 2512.20848, table 1; nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 "
      "config.json",
      "2[ME]M*4[E2[ME]M*]E3[ME]M*4[EM]E", 2688, 32, 2, 64, 128));
  models->back().experts = 128;
  models->back().experts_per_token = 6;
  models->back().expert_ffn_hidden = 1856;
  models->back().shared_ffn_hidden = 2 * 1856;
}

// Three layers with gated delta, then one with gated attention.
void AddQwenNext(std::vector<ModelSpec>* models) {
  ModelSpec model = Llama("qwen3-next-80b-a3b",
                          "Qwen/Qwen3-Next-80B-A3B-Instruct config.json", 0,
                          2048, 16, 2, 0, 151936, 4096);
  model.head_dim = 256;
  model.rotary_dim = 64;
  model.qk_norm = model.attention_gate = true;
  model.experts = 512;
  model.experts_per_token = 10;
  model.expert_ffn_hidden = model.shared_ffn_hidden = 512;
  model.shared_gate = true;
  model.delta_key_heads = 16;
  model.delta_value_heads = 32;
  model.delta_key_dim = model.delta_value_dim = 128;
  SetPattern("12[3(GE)(*E)]", &model);
  models->push_back(std::move(model));
}

void AddMixtrals(std::vector<ModelSpec>* models) {
  const auto mixtral = [&](ModelSpec model) {
    model.experts = 8;
    model.experts_per_token = 2;
    model.expert_ffn_hidden = model.ffn_hidden;
    models->push_back(std::move(model));
  };
  mixtral(Llama("mixtral-8x7b", "Jiang et al., arXiv 2401.04088, table 1", 32,
                4096, 32, 8, 14336, 32000, 32768));
  mixtral(Llama("mixtral-8x22b", "mistralai/Mixtral-8x22B-v0.1 config.json", 56,
                6144, 48, 8, 16384, 32000, 65536));
}

ModelSpec DeepSeek(std::string name, std::string source, int64_t layers,
                   int64_t hidden, int64_t ffn_hidden, int64_t vocabulary) {
  ModelSpec model = Llama(std::move(name), std::move(source), layers, hidden,
                          128, 128, ffn_hidden, vocabulary, 4096);
  model.q_lora_rank = 1536;
  model.kv_lora_rank = 512;
  model.qk_nope_head_dim = 128;
  model.qk_rope_head_dim = 64;
  model.v_head_dim = 128;
  return model;
}

void AddDeepSeeks(std::vector<ModelSpec>* models) {
  ModelSpec v2 = DeepSeek("deepseek-v2", "arXiv 2405.04434, section 3.1.2", 60,
                          5120, 12288, 102400);
  v2.experts = 160;
  v2.experts_per_token = 6;
  v2.expert_ffn_hidden = 1536;
  v2.shared_ffn_hidden = 2 * 1536;
  v2.first_dense_layers = 1;
  models->push_back(std::move(v2));
  ModelSpec v3 = DeepSeek("deepseek-v3", "arXiv 2412.19437, section 4.2", 61,
                          7168, 18432, 129280);
  v3.experts = 256;
  v3.experts_per_token = 8;
  v3.expert_ffn_hidden = 2048;
  v3.shared_ffn_hidden = 2048;
  v3.first_dense_layers = 3;
  v3.mtp_layers = 1;
  models->push_back(std::move(v3));
}

ModelSpec Bert(std::string name, int64_t layers, int64_t hidden,
               int64_t heads) {
  ModelSpec model =
      Gpt(std::move(name),
          "Devlin et al., arXiv 1810.04805, section 3; google-research/bert",
          layers, hidden, heads, 30522, 512);
  model.causal = false;
  model.final_norm = false;
  model.token_types = 2;
  model.embedding_norm = true;
  model.pooler = true;
  model.masked_lm_head = true;
  return model;
}

}  // namespace

const std::vector<ModelSpec>& AllModels() {
  static const auto* models = [] {
    auto* all = new std::vector<ModelSpec>{GptTiny(), MoeTiny()};
    AddGpts(all);
    AddLlamas(all);
    AddQwens(all);
    AddMixtrals(all);
    AddDeepSeeks(all);
    AddGptOss(all);
    AddNemotrons(all);
    AddQwenNext(all);
    all->push_back(Bert("bert-base", 12, 768, 12));
    all->push_back(Bert("bert-large", 24, 1024, 16));
    std::sort(
        all->begin(), all->end(),
        [](const ModelSpec& a, const ModelSpec& b) { return a.name < b.name; });
    return all;
  }();
  return *models;
}

}  // namespace pipewright
