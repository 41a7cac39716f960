#include "sim/model/model.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace pipewright::model_test {
namespace {

TEST_CASE("model: llama3-8b has its published number of parameters",
          "[model]") {
  const auto model = FindModel("llama3-8b");
  REQUIRE(model.ok());
  // The model card says 8.03 B; exactly, by adding up its tensors:
  CHECK(model->Parameters() == 8030261248.0);
}

TEST_CASE("model: a model that cannot be is refused by field", "[model]") {
  ModelSpec model = FindModel("gpt-tiny").value();
  CHECK(CheckModel(model).ok());
  model.heads = 3;
  CHECK(absl::StrContains(CheckModel(model).message(), "model.heads: 3"));
  model = FindModel("gpt-tiny").value();
  model.kv_heads = 3;
  CHECK(absl::StrContains(CheckModel(model).message(), "model.kv_heads: 3"));
  model.layers = 0;
  CHECK(absl::StrContains(CheckModel(model).message(), "model.layers: 0"));
  CHECK(absl::StrContains(FindModel("llama-8b").status().message(),
                          "did you mean 'llama3-8b'?"));
}

}  // namespace
}  // namespace pipewright::model_test
