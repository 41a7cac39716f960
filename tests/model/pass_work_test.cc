// Work of passes against hand arithmetic on a model of a dense layer.
#include "sim/model/pass_work.h"

#include <catch2/catch.hpp>

namespace pipewright::pass_work_test {
namespace {

// 2 layers, width 64, 4 heads of 16, gated 128, vocabulary 100.
ModelSpec SmallModel() {
  ModelSpec model;
  model.name = "small";
  model.layers = 2;
  model.hidden = 64;
  model.heads = 4;
  model.kv_heads = 2;
  model.ffn_hidden = 128;
  model.gated = true;
  model.vocabulary = 100;
  model.sequence = 256;
  return model;
}

// Weights of a layer: queries and output 64 * 64, keys and values 64 * 32 each,
// three of 64 * 128.
constexpr double kLayer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128;
constexpr double kHead = 64 * 100;

TEST_CASE("pass work: linear layers and attention of a small model",
          "[sequences]") {
  const PassWorks works = WorksOf(SmallModel(), TrainingSpec(), 0);
  CHECK(works.forward.linear == Approx(2 * (2 * kLayer + kHead)).epsilon(0.05));
  CHECK(works.backward_weight.linear ==
        Approx(2 * (2 * kLayer + kHead)).epsilon(0.05));
  // Scores and values, 2 FLOPs each, of width 64, half of them masked.
  CHECK(works.forward.square == Approx(2 * 2 * 2 * 64 * 0.5));
  CHECK(works.backward_input.square > 2 * works.forward.square * 0.99);
  CHECK(works.backward_weight.square == 0);
  // The whole forward again, but not the head.
  TrainingSpec full;
  full.recompute = Recompute::kFull;
  const PassWorks again = WorksOf(SmallModel(), full, 1);
  CHECK(again.backward_input.square - works.backward_input.square ==
        Approx(works.forward.square));
  CHECK(again.backward_input.linear - works.backward_input.linear ==
        Approx(2 * 2 * kLayer).epsilon(0.05));
}

TEST_CASE("pass work: weights over queries without the head", "[sequences]") {
  CHECK(WeightsOverQueries(SmallModel()) == Approx(2 * kLayer / (2 * 64)));
}

TEST_CASE("pass work: factors of packed microbatches", "[sequences]") {
  PassWorks works;
  works.forward = {.linear = 10, .square = 0.01};
  works.backward_input = {.linear = 10, .square = 0.03};
  works.backward_weight = {.linear = 10};
  const std::vector<int64_t> lengths = {1000, 500, 500};
  const MicrobatchFactors factors =
      FactorsOf({{0}, {1, 2}, {0, 1}}, lengths, works, 1000, 1);
  // 1000: 10000 + 10000; 500 twice: 10000 + 5000.
  CHECK(factors.forward == std::vector<double>{1, 0.75, 1.375});
  CHECK(factors.backward_input == std::vector<double>{1, 0.625, 1.3125});
  CHECK(factors.backward_weight == std::vector<double>{1, 1, 1.5});
  CHECK(factors.tokens == 3500);
  CHECK(factors.most_tokens == 1500);
  // The base of two samples is twice as much.
  CHECK(FactorsOf({{0}}, lengths, works, 1000, 2).forward[0] == 0.5);
}

TEST_CASE("pass work: without a model as the packer counts", "[sequences]") {
  const PassWorks fit = PassWorks::OfCost({.kind = PackerCost::kFit});
  CHECK(fit.forward.At(7000) / fit.forward.At(32000) ==
        Approx(kFit7B.At(7000) / kFit7B.At(32000)));
  const PassWorks linear = PassWorks::OfCost({});
  CHECK(linear.backward_weight.At(300) == 3 * linear.forward.At(100));
  const SampleCost flops = {.kind = PackerCost::kFlops,
                            .weights_over_queries = 30000};
  const PassWorks counted = PassWorks::OfCost(flops);
  CHECK(counted.forward.At(9000) / counted.forward.At(100) ==
        Approx(flops.At(9000) / flops.At(100)));
}

}  // namespace
}  // namespace pipewright::pass_work_test
