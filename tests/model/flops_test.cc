#include "sim/model/flops.h"

#include <catch2/catch.hpp>

namespace pipewright::flops_test {
namespace {

ModelSpec Preset(const char* name) { return FindModel(name).value(); }

double Recomputed(const ModelSpec& model, Recompute recompute,
                  std::vector<bool> chunks = {}, bool flash = true) {
  TrainingSpec training;
  training.sequence = model.sequence;
  training.recompute = recompute;
  training.recompute_chunks = std::move(chunks);
  training.flash_attention = flash;
  const StageLayout layout = EvenLayout(model, training, 2, 2).value();
  return RecomputedFlopsPerToken(model, training, layout, {0, 1, 0, 1}, false);
}

// Narayanan et al., arXiv 2104.04473, equation 3, for one token.
TEST_CASE("flops: a GPT with full recomputation has Megatron's equation 3",
          "[model]") {
  for (const char* name : {"gpt-1.7b", "gpt-22b", "gpt-175b", "gpt-1t"}) {
    INFO(name);
    const ModelSpec model = Preset(name);
    const auto layers = static_cast<double>(model.layers);
    const auto hidden = static_cast<double>(model.hidden);
    const auto sequence = static_cast<double>(model.sequence);
    const double published =
        96 * layers * hidden * hidden *
        (1 + sequence / (6 * hidden) +
         static_cast<double>(model.vocabulary) / (16 * layers * hidden));
    CHECK(ModelFlopsPerToken(model, model.sequence, false) +
              Recomputed(model, Recompute::kFull) ==
          Approx(published).epsilon(1e-12));
  }
}

TEST_CASE("flops: what is recomputed follows the choice", "[model]") {
  const ModelSpec model = Preset("gpt-22b");
  CHECK(Recomputed(model, Recompute::kNone) == 0);
  const double whole = Recomputed(model, Recompute::kFull);
  CHECK(Recomputed(model, Recompute::kFull, {}, false) == Approx(whole));
  // 4 b s^2 h of a layer, whatever attention keeps.
  for (const bool flash : {false, true}) {
    CHECK(Recomputed(model, Recompute::kSelective, {}, flash) ==
          Approx(4.0 * 48 * 2048 * 6144));
  }
  CHECK(Recomputed(model, Recompute::kNormActivation) == 0);
  CHECK(Recomputed(model, Recompute::kFull, {true, false}) ==
        Approx(whole / 2));
}

TEST_CASE("flops: a causal mask halves attention where it is asked to",
          "[model]") {
  const ModelSpec model = Preset("gpt-22b");
  CHECK(ModelFlopsPerToken(model, 2048, false) -
            ModelFlopsPerToken(model, 2048, true) ==
        Approx(3 * 2.0 * 48 * 2048 * 6144));
  const ModelSpec bert = Preset("bert-large");
  CHECK(ModelFlopsPerToken(bert, 512, false) ==
        ModelFlopsPerToken(bert, 512, true));
}

TEST_CASE("flops: windows, chunks and layers that have none", "[model]") {
  ModelSpec model = FindModel("gpt-tiny").value();
  const auto extra = [&] {
    const double windowed = ModelFlopsPerToken(model, 1024, true);
    ModelSpec all = model;
    all.window = 0;
    return (ModelFlopsPerToken(all, 1024, true) - windowed);
  };
  model.window = 256;
  // Of the half that a causal mask leaves: 1/4 * (2 - 1/4).
  const double saved = extra();
  model.chunked_window = true;
  // 1/4.
  CHECK(extra() / saved == Approx((1 - 0.25) / (1 - 0.25 * 1.75)));
  model.chunked_window = false;
  model.full_attention_first = 4;
  CHECK(extra() / saved == Approx(12.0 / 16));
  model.full_attention_every = 4;
  CHECK(extra() / saved == Approx(9.0 / 16));
}

TEST_CASE("flops: frozen weights need no gradient", "[model]") {
  ModelSpec model = Preset("llama3-8b");
  const double whole = ModelFlopsPerToken(model, 8192, false);
  ModelSpec lora = model;
  lora.lora_rank = 16;
  const double lora_flops = ModelFlopsPerToken(lora, 8192, false);
  CHECK(lora_flops < 0.80 * whole);
  CHECK(lora_flops > 0.65 * whole);
  model.frozen_layers = 16;
  const double half = ModelFlopsPerToken(model, 8192, false);
  // The frozen half of the layers keeps its forward, a third.
  CHECK(half < 0.70 * whole);
  CHECK(half > 0.65 * whole);
}

TEST_CASE("flops: a token meets some experts only", "[model]") {
  const ModelSpec model = Preset("mixtral-8x7b");
  const double flops = ModelFlopsPerToken(model, 1024, true);
  CHECK(flops > 5.9 * model.ActiveParameters());
  CHECK(flops < 6.3 * model.ActiveParameters());
}

}  // namespace
}  // namespace pipewright::flops_test
