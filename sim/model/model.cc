#include "sim/model/model.h"

#include "absl/strings/str_cat.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Sizes as double: the product of two sizes below 2^31 is above 2^53 only
// where no model is.
double Product(int64_t a, int64_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

absl::Status CheckSize(absl::string_view field, int64_t value) {
  return value >= 1 ? absl::OkStatus()
                    : BadValue(absl::StrCat("model.", field),
                               absl::StrCat(value), "an integer from 1 on");
}

}  // namespace

double ModelSpec::LayerParameters() const {
  const double keys_and_values = 2 * Product(hidden, hidden / heads * kv_heads);
  const double attention = 2 * Product(hidden, hidden) + keys_and_values;
  const double feed_forward = (gated ? 3 : 2) * Product(hidden, ffn_hidden);
  const double norms = 2.0 * static_cast<double>(hidden);
  return attention + feed_forward + norms;
}

double ModelSpec::Parameters() const {
  return static_cast<double>(layers) * LayerParameters() +
         (tied_embeddings ? 1 : 2) * Product(vocabulary, hidden) +
         static_cast<double>(hidden);
}

double ModelSpec::StageParameters(int stage, int stages) const {
  if (stages == 1) return Parameters();
  double parameters = static_cast<double>(layers / stages) * LayerParameters();
  if (stage == 0) parameters += Product(vocabulary, hidden);
  if (stage == stages - 1) {
    parameters += Product(vocabulary, hidden) + static_cast<double>(hidden);
  }
  return parameters;
}

absl::Status CheckModel(const ModelSpec& model) {
  PW_RETURN_IF_ERROR(CheckSize("layers", model.layers));
  PW_RETURN_IF_ERROR(CheckSize("hidden", model.hidden));
  PW_RETURN_IF_ERROR(CheckSize("heads", model.heads));
  PW_RETURN_IF_ERROR(CheckSize("kv_heads", model.kv_heads));
  PW_RETURN_IF_ERROR(CheckSize("ffn_hidden", model.ffn_hidden));
  PW_RETURN_IF_ERROR(CheckSize("vocabulary", model.vocabulary));
  PW_RETURN_IF_ERROR(CheckSize("sequence", model.sequence));
  if (model.hidden % model.heads != 0) {
    return BadValue("model.heads", absl::StrCat(model.heads),
                    absl::StrCat("a divisor of hidden (", model.hidden, ")"));
  }
  if (model.heads % model.kv_heads != 0) {
    return BadValue("model.kv_heads", absl::StrCat(model.kv_heads),
                    absl::StrCat("a divisor of heads (", model.heads, ")"));
  }
  return absl::OkStatus();
}

const std::vector<ModelSpec>& AllModels() {
  static const auto* models = new std::vector<ModelSpec>{
      {
          .name = "gpt-tiny",
          .source = "our own: runs anywhere in seconds (DESIGN section 4)",
          .layers = 16,
          .hidden = 256,
          .heads = 4,
          .kv_heads = 4,
          .ffn_hidden = 1024,
          .gated = false,
          .vocabulary = 512,
          .sequence = 128,
          .tied_embeddings = false,
      },
      {
          .name = "llama3-8b",
          .source = "The Llama 3 Herd of Models, arXiv 2407.21783, table 3; "
                    "sequence from section 3.4.1",
          .layers = 32,
          .hidden = 4096,
          .heads = 32,
          .kv_heads = 8,
          .ffn_hidden = 14336,
          .gated = true,
          .vocabulary = 128256,
          .sequence = 8192,
          .tied_embeddings = false,
      },
  };
  return *models;
}

absl::StatusOr<ModelSpec> FindModel(absl::string_view name) {
  std::vector<std::string> known;
  for (const ModelSpec& model : AllModels()) {
    if (model.name == name) return model;
    known.push_back(model.name);
  }
  return UnknownName("model", name, known);
}

}  // namespace pipewright
