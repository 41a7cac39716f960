#include <cmath>

#include "absl/strings/match.h"
#include "sim/base/check.h"
#include "sim/model/hf_config.h"
#include "tests/fuzz/targets.h"

namespace pipewright::testing {

bool FuzzHuggingFace(absl::string_view input) {
  const absl::StatusOr<ModelSpec> model =
      ModelFromHuggingFace(input, "config.json");
  if (!model.ok()) {
    PW_CHECK(model.status().code() == absl::StatusCode::kInvalidArgument);
    PW_CHECK(absl::StartsWith(model.status().message(), "config.json:"));
    return false;
  }
  PW_CHECK(CheckModel(*model).ok());
  PW_CHECK(std::isfinite(model->Parameters()) && model->Parameters() > 0);
  PW_CHECK(model->ActiveParameters() <= model->Parameters());
  return true;
}

}  // namespace pipewright::testing
