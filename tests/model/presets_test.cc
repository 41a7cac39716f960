// Published sizes of models, to the digits printed.
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/model/model.h"
#include "sim/model/ops.h"

namespace pipewright::presets_test {
namespace {

struct Published {
  const char* name;
  double count;   // as printed
  double digits;  // value of the last digit printed
  const char* source;
  // Some papers print what is above the last digit, others round.
  bool rounded_down = false;
};

constexpr double kExact = 1;
constexpr double kMillion = 1e6;
constexpr double kBillion = 1e9;

bool Equals(double value, const Published& published) {
  const double steps = value / published.digits;
  const double shown =
      published.rounded_down ? std::floor(steps) : std::floor(steps + 0.5);
  return shown == std::floor(published.count / published.digits + 0.5);
}

const char* kSc21 = "arXiv 2104.04473, table 1";
const char* kZeroBubble = "arXiv 2401.10241, table 3";
const char* kVHalf = "arXiv 2405.15362, models";
// Sum over the tensors of the safetensors files of the model card.
const char* kTensors = "huggingface.co model card, tensors";

const Published kTotals[] = {
    {"gpt-1.7b", 1.7 * kBillion, 0.1 * kBillion, kSc21},
    {"gpt-3.6b", 3.6 * kBillion, 0.1 * kBillion, kSc21},
    {"gpt-7.5b", 7.5 * kBillion, 0.1 * kBillion, kSc21},
    {"gpt-18.4b", 18.4 * kBillion, 0.1 * kBillion, kSc21},
    {"gpt-39.1b", 39.1 * kBillion, 0.1 * kBillion, kSc21},
    {"gpt-76.1b", 76.1 * kBillion, 0.1 * kBillion, kSc21},
    {"gpt-145.6b", 145.6 * kBillion, 0.1 * kBillion, kSc21},
    {"gpt-310.1b", 310.1 * kBillion, 0.1 * kBillion, kSc21},
    {"gpt-529.6b", 529.6 * kBillion, 0.1 * kBillion, kSc21},
    {"gpt-1008b", 1008.0 * kBillion, 0.1 * kBillion, kSc21},
    {"gpt-175b", 174.6 * kBillion, 0.1 * kBillion, "arXiv 2104.04473, table 2"},
    {"gpt-22b", 22 * kBillion, kBillion, "arXiv 2205.05198, table 3"},
    {"gpt-175b", 175 * kBillion, kBillion, "arXiv 2205.05198, table 3"},
    {"gpt-530b", 530 * kBillion, kBillion, "arXiv 2205.05198, table 3"},
    {"gpt-1t", 1e12, 0.1e12, "arXiv 2205.05198, table 3"},
    {"gpt-1.5b", 1.5 * kBillion, 0.1 * kBillion, kZeroBubble},
    {"gpt-6.2b", 6.2 * kBillion, 0.1 * kBillion, kZeroBubble},
    {"gpt-14.6b", 14.6 * kBillion, 0.1 * kBillion, kZeroBubble},
    {"gpt-28.3b", 28.3 * kBillion, 0.1 * kBillion, kZeroBubble},
    {"gpt-9.6b", 9.6 * kBillion, 0.1 * kBillion, kVHalf},
    {"gpt-21b", 21 * kBillion, kBillion, kVHalf},
    {"gpt-38.5b", 38.5 * kBillion, 0.1 * kBillion, kVHalf},
    {"gpt-98.5b", 98.5 * kBillion, 0.1 * kBillion, kVHalf},
    {"gpt2", 124439808, kExact, kTensors},
    {"gpt2", 124 * kMillion, kMillion, "openai/gpt-2, README"},
    {"gpt2-medium", 354823168, kExact, kTensors},
    {"gpt2-large", 774030080, kExact, kTensors},
    {"gpt2-xl", 1557611200, kExact, kTensors},
    {"llama2-7b", 6738415616, kExact, kTensors},
    {"llama2-13b", 13015864320, kExact, kTensors},
    {"llama2-70b", 68976648192, kExact, kTensors},
    {"llama3-8b", 8030261248, kExact, kTensors},
    {"llama3-70b", 70553706496, kExact, kTensors},
    {"llama3-405b", 405853388800, kExact, kTensors},
    {"mistral-7b", 7241732096, kExact, kTensors},
    {"qwen2.5-7b", 7.61 * kBillion, 0.01 * kBillion, "Qwen2.5-7B, card", true},
    {"qwen2.5-32b", 32.8 * kBillion, 0.1 * kBillion, "Qwen2.5-32B, tensors"},
    {"qwen2.5-72b", 72.7 * kBillion, 0.1 * kBillion, "Qwen2.5-72B, card"},
    {"qwen3-8b", 8.2 * kBillion, 0.1 * kBillion, "Qwen3-8B, card"},
    {"qwen3-30b-a3b", 30.5 * kBillion, 0.1 * kBillion, "Qwen3-30B-A3B, card"},
    {"qwen3-235b-a22b", 235 * kBillion, kBillion, "Qwen3-235B-A22B, card"},
    {"mixtral-8x7b", 46702792704, kExact, kTensors},
    {"mixtral-8x22b", 141 * kBillion, kBillion, "Mixtral 8x22B, announcement"},
    {"deepseek-v2", 236 * kBillion, kBillion, "arXiv 2405.04434, abstract"},
    {"deepseek-v3", 671 * kBillion, kBillion, "arXiv 2412.19437, abstract"},
    {"bert-base", 110 * kMillion, kMillion, "arXiv 1810.04805, section 3"},
    {"bert-large", 340 * kMillion, 10 * kMillion,
     "arXiv 1810.04805, section 3"},
};

const Published kActive[] = {
    {"mixtral-8x7b", 12.9 * kBillion, 0.1 * kBillion, "arXiv 2401.04088"},
    {"mixtral-8x22b", 39 * kBillion, kBillion, "Mixtral 8x22B, announcement"},
    {"deepseek-v2", 21 * kBillion, kBillion, "arXiv 2405.04434, abstract"},
    {"deepseek-v3", 37 * kBillion, kBillion, "arXiv 2412.19437, abstract",
     true},
    {"qwen3-30b-a3b", 3.3 * kBillion, 0.1 * kBillion, "Qwen3-30B-A3B, card",
     true},
    {"qwen3-235b-a22b", 22 * kBillion, kBillion, "Qwen3-235B-A22B, card"},
};

TEST_CASE("model: totals of parameters are the published ones", "[model]") {
  for (const Published& published : kTotals) {
    INFO(published.name << ", " << published.source);
    const auto model = FindModel(published.name);
    REQUIRE(model.ok());
    // Publishers leave multi-token prediction out of the total.
    const double main =
        model->Parameters() -
        static_cast<double>(model->mtp_layers) * model->MtpLayerParameters();
    INFO(static_cast<int64_t>(main));
    CHECK(Equals(main, published));
  }
}

TEST_CASE("model: active parameters are the published ones", "[model]") {
  for (const Published& published : kActive) {
    INFO(published.name << ", " << published.source);
    const auto model = FindModel(published.name);
    REQUIRE(model.ok());
    INFO(static_cast<int64_t>(model->ActiveParameters()));
    CHECK(Equals(model->ActiveParameters(), published));
  }
}

// The card counts 685 B: its files hold the two shared tables once more for
// multi-token prediction, and a scale for each 128 x 128 values in fp8.
TEST_CASE("model: multi-token prediction has the published size", "[model]") {
  const auto model = FindModel("deepseek-v3");
  REQUIRE(model.ok());
  const double tables = 2.0 * static_cast<double>(model->vocabulary) *
                        static_cast<double>(model->hidden);
  const double stored = (model->Parameters() + tables) * (1 + 1.0 / 16384);
  CHECK(std::floor(stored / kBillion + 0.5) == 685);
}

TEST_CASE("model: every preset can be, once, with a source", "[model]") {
  const std::vector<ModelSpec>& all = AllModels();
  for (size_t index = 0; index < all.size(); ++index) {
    INFO(all[index].name);
    CHECK(CheckModel(all[index]).ok());
    CHECK(!all[index].source.empty());
    CHECK((index == 0 || all[index - 1].name < all[index].name));
    CHECK(all[index].ActiveParameters() <= all[index].Parameters());
    if (!all[index].has_experts()) {
      CHECK(all[index].ActiveParameters() == all[index].Parameters());
    }
  }
}

TEST_CASE("model: the inventory of operations holds every parameter",
          "[model]") {
  TrainingSpec training;
  std::vector<ModelSpec> models = AllModels();
  for (ModelSpec adapted : AllModels()) {
    adapted.lora_rank = 8;
    models.push_back(adapted);
  }
  for (const ModelSpec& model : models) {
    INFO(model.name << ", rank of adapters " << model.lora_rank);
    training.sequence = model.sequence;
    double sum = 0;
    const auto add = [&](BlockKind kind, int64_t layer, double count) {
      for (const ModelOp& op : BlockOps(model, training, kind, layer)) {
        if (!op.is_tied) sum += count * op.parameters;
      }
    };
    add(BlockKind::kEmbedding, 0, 1);
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      add(model.IsExpertLayer(layer) ? BlockKind::kExpertLayer
                                     : BlockKind::kDenseLayer,
          layer, 1);
    }
    add(BlockKind::kMtpLayer, model.layers,
        static_cast<double>(model.mtp_layers));
    add(BlockKind::kHead, 0, 1);
    // A tied head of BERT has a bias of its own beside the shared table.
    const double beside =
        model.masked_lm_head ? static_cast<double>(model.vocabulary) : 0;
    CHECK(sum + beside == model.Parameters());
  }
}

// Narayanan et al., arXiv 2104.04473, equation 2.
TEST_CASE("model: Megatron's formula counts its models", "[model]") {
  for (const char* name : {"gpt-1.7b", "gpt-145.6b", "gpt-1008b"}) {
    const auto model = FindModel(name);
    REQUIRE(model.ok());
    const auto l = static_cast<double>(model->layers);
    const auto h = static_cast<double>(model->hidden);
    const auto V = static_cast<double>(model->vocabulary);
    const auto s = static_cast<double>(model->sequence);
    const double formula =
        12 * l * h * h * (1 + 13 / (12 * h) + (V + s) / (12 * l * h));
    // The formula leaves out the last norm.
    CHECK(model->Parameters() == Approx(formula + 2 * h).epsilon(1e-14));
  }
}

// Hu et al., arXiv 2106.09685, section 4.2: rank * (inputs + outputs) for
// each adapted matrix; those with the same input are one.
TEST_CASE("model: low-rank adapters are counted beside every matrix",
          "[model]") {
  auto model = FindModel("llama2-7b");
  REQUIRE(model.ok());
  const double without = model->Parameters();
  model->lora_rank = 16;
  const double layer =
      (4096 + 3 * 4096) + (4096 + 4096) + (4096 + 2 * 11008) + (11008 + 4096);
  CHECK(model->Parameters() == without + 32 * 16 * layer);
}

}  // namespace
}  // namespace pipewright::presets_test
