#include "sim/model/model.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace pipewright {
namespace {

TEST_CASE("cost: llama3-8b has its published number of parameters", "[cost]") {
  const auto model = FindModel("llama3-8b");
  REQUIRE(model.ok());
  // The model card says 8.03 B; exactly, by adding up its tensors:
  CHECK(model->Parameters() == 8030261248.0);
}

TEST_CASE("cost: the stages of a model hold all of it", "[cost]") {
  for (const ModelSpec& model : AllModels()) {
    for (const int stages : {1, 2, 8}) {
      double sum = 0;
      for (int stage = 0; stage < stages; ++stage) {
        sum += model.StageParameters(stage, stages);
      }
      CHECK(sum == model.Parameters());
    }
    ModelSpec tied = model;
    tied.tied_embeddings = true;
    const double table = static_cast<double>(model.vocabulary) *
                         static_cast<double>(model.hidden);
    CHECK(tied.Parameters() == model.Parameters() - table);
    CHECK(tied.StageParameters(0, 1) == tied.Parameters());
    // On two stages the table is stored twice.
    CHECK(tied.StageParameters(3, 4) == model.StageParameters(3, 4));
  }
}

TEST_CASE("cost: a model that cannot be is refused by field", "[cost]") {
  ModelSpec model = AllModels().front();
  CHECK(CheckModel(model).ok());
  model.heads = 3;
  CHECK(absl::StrContains(CheckModel(model).message(), "model.heads: 3"));
  model = AllModels().front();
  model.kv_heads = 3;
  CHECK(absl::StrContains(CheckModel(model).message(), "model.kv_heads: 3"));
  model.layers = 0;
  CHECK(absl::StrContains(CheckModel(model).message(), "model.layers: 0"));
  CHECK(absl::StrContains(FindModel("llama-8b").status().message(),
                          "did you mean 'llama3-8b'?"));
}

}  // namespace
}  // namespace pipewright
