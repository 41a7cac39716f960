#include "sim/model/stages.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "absl/strings/match.h"
#include "sim/model/balanced_layout.h"

namespace pipewright::stages_test {
namespace {

ModelSpec Model(absl::string_view name) { return FindModel(name).value(); }

std::vector<int64_t> Layers(const StageLayout& layout) {
  std::vector<int64_t> layers;
  for (int stage = 0; stage < static_cast<int>(layout.stages.size()); ++stage) {
    layers.push_back(layout.LayersOf(stage));
  }
  return layers;
}

bool Says(const absl::Status& status, absl::string_view part) {
  INFO(status.message());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return absl::StrContains(status.message(), part);
}

TEST_CASE("stages: the even split has the vocabulary at its ends", "[model]") {
  const auto layout = EvenLayout(Model("gpt-tiny"), {}, 2, 2);
  REQUIRE(layout.ok());
  CHECK(layout->ToString() ==
        "embedding, 4 layers\n4 layers\n4 layers\n4 layers, head\n");
}

TEST_CASE("stages: the vocabulary may be spread", "[model]") {
  TrainingSpec training;
  training.vocabulary = VocabularyPlacement::kSpread;
  const auto layout = EvenLayout(Model("gpt-tiny"), training, 2, 1);
  REQUIRE(layout.ok());
  CHECK(layout->ToString() ==
        "part of embedding, 8 layers, part of head\n"
        "part of embedding, 8 layers, part of head\n");
  CHECK(layout->stages[0][0].part == 0.5);
}

TEST_CASE("stages: dense layers come before experts, prediction behind",
          "[model]") {
  std::vector<int64_t> counts(31, 2);
  counts[30] = 1;
  const auto layout = LayoutFromCounts(Model("deepseek-v3"), {}, counts);
  REQUIRE(layout.ok());
  const std::string text = layout->ToString();
  CHECK(absl::StartsWith(text,
                         "embedding, 2 layers\n1 layer, 1 expert layer\n"
                         "2 expert layers\n"));
  CHECK(absl::EndsWith(
      text,
      "1 expert layer, embedding, 1 multi-token-prediction layer, head\n"));
  CHECK(layout->stages[1][1].first_layer == 3);
}

TEST_CASE("stages: experts in every second layer", "[model]") {
  ModelSpec model = Model("moe-tiny");
  model.layers = 6;
  model.first_dense_layers = 1;
  model.expert_layer_every = 2;
  CHECK(model.ExpertLayers() == 3);
  const auto layout = LayoutFromCounts(model, {}, {3, 3});
  REQUIRE(layout.ok());
  CHECK(layout->ToString() ==
        "embedding, 1 layer, 1 expert layer, 1 layer\n"
        "1 expert layer, 1 layer, 1 expert layer, head\n");
  CHECK(layout->stages[1][2].first_layer == 5);
  ModelSpec all = model;
  all.expert_layer_every = 0;
  CHECK(all.Parameters() - model.Parameters() ==
        2 * (all.LayerParameters(2) - model.LayerParameters(2)));
}

TEST_CASE("stages: layers that do not split are told what would", "[model]") {
  const ModelSpec model = Model("llama3-70b");
  const absl::Status pp = EvenLayout(model, {}, 6, 1).status();
  CHECK(Says(pp, "strategy.pp: pp * vpp = 6 * 1 = 6"));
  CHECK(Says(pp, "with vpp = 1: 5, 8"));
  CHECK(Says(pp, "strategy.split: balanced works for any number"));
  const absl::Status vpp = EvenLayout(model, {}, 8, 3).status();
  CHECK(Says(vpp, "strategy.vpp"));
  CHECK(Says(vpp, "with pp = 8: 2, 5"));
  CHECK(Says(EvenLayout(model, {}, 128, 1).status(), "80"));
  CHECK(Says(LayoutFromCounts(model, {}, {40, 39}).status(),
             "strategy.layers: 40, 39 is not allowed; allowed: numbers that "
             "add up to the 80 layers of the model; these are 79"));
  CHECK(Says(LayoutFromCounts(model, {}, {81, -1}).status(), "-1"));
}

// The example of Megatron Core's user guide: DeepSeek-V3 on pp 16, vpp 2.
TEST_CASE("stages: Megatron's layout string of DeepSeek-V3", "[model]") {
  const auto layout =
      ParseLayout(Model("deepseek-v3"), {}, "Et*3|(tt|)*29,m|L", 32);
  REQUIRE(layout.ok());
  const std::string text = layout->ToString();
  CHECK(absl::StartsWith(text, "embedding, 3 layers\n2 expert layers\n"));
  CHECK(absl::EndsWith(
      text,
      "2 expert layers\nembedding, 1 multi-token-prediction layer\nhead\n"));
  const std::vector<int64_t> layers = Layers(*layout);
  CHECK(std::accumulate(layers.begin(), layers.end(), int64_t{0}) == 61);
}

TEST_CASE("stages: prediction behind the first stage has a table of its own",
          "[model]") {
  ModelSpec model = Model("gpt-tiny");
  model.layers = 2;
  model.mtp_layers = 1;
  const auto text = [&](const TrainingSpec& training,
                        const std::vector<int64_t>& counts) {
    return LayoutFromCounts(model, training, counts)->ToString();
  };
  CHECK(text({}, {1, 1}) ==
        "embedding, 1 layer\n"
        "1 layer, embedding, 1 multi-token-prediction layer, head\n");
  CHECK(text({}, {2}) ==
        "embedding, 2 layers, 1 multi-token-prediction layer, head\n");
  TrainingSpec shared;
  shared.prediction_table = false;
  CHECK(text(shared, {1, 1}) ==
        "embedding, 1 layer\n1 layer, 1 multi-token-prediction layer, head\n");
  TrainingSpec spread;
  spread.vocabulary = VocabularyPlacement::kSpread;
  CHECK(text(spread, {1, 1}) ==
        "part of embedding, 1 layer, part of head\n"
        "part of embedding, 1 layer, 1 multi-token-prediction layer, part of "
        "head\n");
}

// Megatron-LM builds an embedding with each part that predicts
// (megatron/core/models/gpt/gpt_model.py): a layer of 1.642 billion parameters,
// a projection of 0.103 and a table of 0.927.
TEST_CASE("stages: DeepSeek-V3's prediction adds 2.672 billion parameters",
          "[model]") {
  ModelSpec model = Model("deepseek-v3");
  const auto last = [&](absl::string_view layout) {
    const StageLayout stages = *ParseLayout(model, {}, layout, 30);
    double sum = 0;
    for (const StageBlock& block : stages.stages.back()) {
      for (const ModelOp& op :
           BlockOps(model, {}, block.kind, block.first_layer)) {
        const double part = op.is_expert ? 1.0 / 8 : 1;
        sum += part * static_cast<double>(block.count) * op.parameters;
      }
    }
    return sum;
  };
  const double with = last("Et*4|(tt|)*28tmL");
  model.mtp_layers = 0;
  const double without = last("Et*4|(tt|)*28tL");
  CHECK(with - without == Approx(2.672e9).epsilon(2e-4));
}

TEST_CASE("stages: a layout string may leave stages empty and nest",
          "[model]") {
  ModelSpec model = Model("gpt-tiny");
  model.layers = 5;
  const auto layout = ParseLayout(model, {}, " E ((t)*2|)*2,|t L", 4);
  REQUIRE(layout.ok());
  CHECK(layout->ToString() ==
        "embedding, 2 layers\n2 layers\nnothing\n1 layer, head\n");
}

TEST_CASE("stages: a wrong layout string is told where", "[model]") {
  ModelSpec model = Model("gpt-tiny");
  model.layers = 4;
  const auto says = [&](absl::string_view text, absl::string_view part) {
    INFO(text << " " << part);
    return Says(ParseLayout(model, {}, text, 2).status(), part);
  };
  CHECK(ParseLayout(model, {}, "Ett|ttL", 2).ok());
  CHECK(says("Ettx|ttL", "at position 4, 'x'"));
  CHECK(says("Et*|tttL", "a number after '*'"));
  CHECK(says("E(tt|ttL",
             "at position 9, its end is not allowed; allowed: a "
             "')'"));
  CHECK(says("Ett)|ttL", "at position 4, ')' is not allowed; allowed: a '('"));
  CHECK(says("Et|t|ttL",
             "pp * vpp = 2 stages with '|' between them; it has "
             "3"));
  CHECK(says("Ett|tL", "4 layers; it has t 3 times"));
  CHECK(says("ttE|ttL", "one E, at the beginning"));
  CHECK(says("Ett|ttLL", "one L, at the end"));
  CHECK(says("Ett|ttmL", "it has m 1 time"));
  CHECK(says("", "stages"));
  CHECK(says("((((t*99999)*99999)*99999)*99999)*99999", "letters in all"));
  CHECK(says(std::string(1000, '('), "within each other"));
}

// The largest sum of a rank over all ways to split, by trying them all.
double SmallestMaximum(const std::vector<double>& layers,
                       const std::vector<int>& rank_of_stage, double embedding,
                       double head, const std::vector<double>& slowness) {
  const size_t stages = rank_of_stage.size();
  double best = 1e300;
  std::vector<size_t> ends(stages, 0);
  ends.back() = layers.size();
  const auto visit = [&](const auto& self, size_t stage) -> void {
    if (stage + 1 < stages) {
      for (ends[stage] = stage == 0 ? 0 : ends[stage - 1];
           ends[stage] <= layers.size(); ++ends[stage]) {
        self(self, stage + 1);
      }
      return;
    }
    std::vector<double> sums(stages, 0);
    for (size_t at = 0; at < stages; ++at) {
      for (size_t layer = at == 0 ? 0 : ends[at - 1]; layer < ends[at];
           ++layer) {
        sums[rank_of_stage[at]] += layers[layer];
      }
    }
    sums[rank_of_stage.front()] += embedding;
    sums[rank_of_stage.back()] += head;
    for (size_t rank = 0; rank < stages; ++rank) sums[rank] *= slowness[rank];
    best = std::min(best, *std::max_element(sums.begin(), sums.end()));
  };
  visit(visit, 0);
  return best;
}

TEST_CASE("stages: the balanced split is the best one", "[model]") {
  ModelSpec model = Model("gpt-tiny");
  const std::vector<std::vector<int>> placements = {
      {0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 0, 1}, {0, 1, 1, 0}};
  for (const std::vector<int>& placement : placements) {
    for (const int64_t layers : {1, 3, 4, 7, 11}) {
      for (const double head : {0.0, 0.5, 2.0, 3.7}) {
        for (const bool mixed : {false, true}) {
          // Exact for mixed layers only with one stage a rank.
          if (mixed && placement.size() == 4 && placement[3] != 3) continue;
          model.layers = layers;
          std::vector<double> weights;
          for (int64_t layer = 0; layer < layers; ++layer) {
            weights.push_back(mixed && layer % 3 == 1 ? 1.9 : 1);
          }
          const auto weight = [&](BlockKind kind, int64_t layer) {
            if (kind == BlockKind::kEmbedding) return 0.25;
            return kind == BlockKind::kHead ? head : weights[layer];
          };
          const StageLayout layout =
              BalancedLayout(model, {}, placement, weight);
          std::vector<double> sums(4, 0);
          for (size_t stage = 0; stage < placement.size(); ++stage) {
            for (const StageBlock& block : layout.stages[stage]) {
              for (int64_t count = 0; count < block.count; ++count) {
                sums[placement[stage]] +=
                    weight(block.kind, block.first_layer + count);
              }
            }
          }
          INFO(layout.ToString());
          CHECK(*std::max_element(sums.begin(), sums.end()) ==
                Approx(SmallestMaximum(weights, placement, 0.25, head,
                                       std::vector<double>(4, 1))));
        }
      }
    }
  }
}

TEST_CASE("stages: the balanced split is the best of ranks that differ",
          "[model]") {
  ModelSpec model = Model("gpt-tiny");
  int uneven = 0;
  for (const std::vector<double>& slowness :
       {std::vector<double>{1.5, 1, 1, 1}, {1, 1, 1.4, 2}, {3, 1, 0.5, 1}}) {
    for (const int ranks : {2, 3, 4}) {
      for (const int64_t layers : {3, 7, 12}) {
        for (const double head : {0.0, 1.3}) {
          model.layers = layers;
          std::vector<int> placement(ranks);
          std::iota(placement.begin(), placement.end(), 0);
          const auto weight = [&](BlockKind kind, int64_t) {
            return kind == BlockKind::kEmbedding ? 0.25
                   : kind == BlockKind::kHead    ? head
                                                 : 1;
          };
          const std::vector<int64_t> counts =
              Layers(BalancedLayout(model, {}, placement, weight, slowness));
          double most = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            const double ends =
                (rank == 0 ? 0.25 : 0) + (rank == ranks - 1 ? head : 0);
            most =
                std::max(most, slowness[rank] *
                                   (static_cast<double>(counts[rank]) + ends));
          }
          INFO(layers << " layers, " << ranks << " ranks");
          CHECK(most ==
                Approx(SmallestMaximum(std::vector<double>(layers, 1),
                                       placement, 0.25, head, slowness)));
          uneven +=
              counts != Layers(BalancedLayout(model, {}, placement, weight));
        }
      }
    }
  }
  CHECK(uneven > 10);
}

TEST_CASE("stages: the balanced split of equal work is even", "[model]") {
  const auto one = [](BlockKind kind, int64_t) {
    return kind == BlockKind::kDenseLayer ? 1.0 : 0.0;
  };
  const StageLayout layout =
      BalancedLayout(Model("gpt-tiny"), {}, {0, 1, 2, 3, 0, 1, 2, 3}, one);
  CHECK(Layers(layout) == std::vector<int64_t>(8, 2));
  ModelSpec model = Model("gpt-tiny");
  model.layers = 9;
  std::vector<int64_t> layers =
      Layers(BalancedLayout(model, {}, {0, 1, 2, 3, 4, 5, 6, 7}, one));
  std::sort(layers.begin(), layers.end());
  CHECK(layers == std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 2});
}

}  // namespace
}  // namespace pipewright::stages_test
