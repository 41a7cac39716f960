#include <cstdint>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare_parts.h"
#include "sim/model/layer_kinds.h"

namespace pipewright {

bool GivesModel(const ModelChoice& model) {
  bool any = model.preset || model.hf;
  for (const ModelSizeRow& row : ModelSizeRows()) {
    any |= (model.*row.given).has_value();
  }
  for (const ModelPropertyRow& row : ModelPropertyRows()) {
    any |= (model.*row.given).has_value();
  }
  return any || model.pattern;
}

namespace {

// What the fields lie on top of.
absl::StatusOr<ModelSpec> BaseModel(const RunConfig& config,
                                    RunContext* context) {
  const ModelChoice& given = config.model;
  if (given.preset && given.hf) {
    return BothGiven(config.Field("model.hf"), config.Field("model.preset"));
  }
  if (given.preset) {
    absl::StatusOr<ModelSpec> preset = context->Model(*given.preset);
    PW_RETURN_IF_ERROR(Prefix(config.Field("model.preset"), preset.status()));
    return preset;
  }
  if (given.hf) {
    PW_ASSIGN_OR_RETURN(
        ModelSpec model,
        context->HuggingFaceModel(config.Field("model.hf"), *given.hf));
    model.name = *given.hf;
    return model;
  }
  ModelSpec model;
  model.name = "custom";
  model.source = "configuration";
  return model;
}

// The kinds of the layers, as many as there are.
absl::Status TakePattern(const RunConfig& config, ModelSpec* model) {
  const ModelChoice& given = config.model;
  if (given.pattern) {
    const bool latent = given.kv_lora_rank.value_or(model->kv_lora_rank) > 0;
    absl::StatusOr<std::vector<LayerKind>> kinds =
        LayerKindsOf(*given.pattern, latent);
    PW_RETURN_IF_ERROR(Prefix(config.Field("model.pattern"), kinds.status()));
    model->kinds = *std::move(kinds);
    model->layers = static_cast<int64_t>(model->kinds.size());
  }
  const int64_t layers = given.layers.value_or(model->layers);
  if (layers > 0 && layers < static_cast<int64_t>(model->kinds.size())) {
    model->kinds.resize(layers);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<ModelSpec>> PrepareModel(const RunConfig& config,
                                                      RunContext* context) {
  const ModelChoice& given = config.model;
  if (!GivesModel(given)) return std::optional<ModelSpec>();
  PW_ASSIGN_OR_RETURN(ModelSpec model, BaseModel(config, context));
  if (given.heads && !given.kv_heads) model.kv_heads = *given.heads;
  PW_RETURN_IF_ERROR(TakePattern(config, &model));
  for (const ModelSizeRow& row : ModelSizeRows()) {
    if (given.*row.given) model.*row.size = *(given.*row.given);
    if (model.*row.size > row.most) {
      const FieldPlace place =
          config.Field(given.*row.given ? row.path : "model.hf");
      return BadValue(place, absl::StrCat(row.path, " ", model.*row.size),
                      absl::StrCat("at most ", row.most));
    }
    const bool is_heads =
        row.size == &ModelSpec::heads || row.size == &ModelSpec::kv_heads;
    const bool is_idle = is_heads && !model.Has(Mixer::kAttention);
    if (model.*row.size >= row.least || is_idle) continue;
    return MissingValue(config.Field(row.path),
                        "model.preset, model.hf, or layers, hidden, heads, "
                        "ffn_hidden, vocabulary and sequence together");
  }
  for (const ModelPropertyRow& row : ModelPropertyRows()) {
    if (given.*row.given) model.*row.property = *(given.*row.given);
  }
  PW_RETURN_IF_ERROR(Locate(config, CheckModel(model)));
  return std::optional<ModelSpec>(model);
}

void AddModelNotes(const RunConfig& given, const ModelSpec& model,
                   std::vector<std::string>* warnings) {
  warnings->insert(warnings->end(), model.notes.begin(), model.notes.end());
  if (!given.model.hf || given.model.sequence || given.strategy.sequence ||
      given.sequences.lengths) {
    return;
  }
  warnings->push_back(absl::StrCat(
      "model.hf says no length of a sample; here it is the longest that ",
      "positions allow, ", model.sequence, " tokens (--sequence N)"));
}

std::optional<double> MicrobatchTokens(const RunConfig& config,
                                       const std::optional<ModelSpec>& model) {
  const StrategyChoice& strategy = config.strategy;
  if (!model && !(strategy.sequence && strategy.microbatch_size)) return {};
  const double sequence = strategy.sequence
                              ? *strategy.sequence
                              : static_cast<double>(model->sequence);
  return strategy.microbatch_size.value_or(1) * sequence;
}

// Work of one token and layer, forward: 2 floating-point operations a
// parameter, and 2 * hidden a token in front (scores and values, 4 * hidden
// each way, half of them masked): arXiv 2104.04473, appendix.
SequenceShape SequenceShapeOf(const RunConfig& config,
                              const std::optional<ModelSpec>& model) {
  SequenceShape shape;
  if (config.strategy.sequence) {
    shape.tokens = *config.strategy.sequence;
  } else if (model) {
    shape.tokens = model->sequence;
  }
  if (model) {
    double parameters = model->LayerParameters(0);
    double attention = 2.0 * static_cast<double>(shape.tokens * model->hidden);
    if (!model->kinds.empty()) {
      double has_it = 0;
      parameters = 0;
      for (int64_t layer = 0; layer < model->layers; ++layer) {
        parameters += model->LayerParameters(layer);
        has_it += model->KindOf(layer).mixer == Mixer::kAttention ? 1 : 0;
      }
      attention *= has_it;
    }
    shape.attention = attention / (2 * parameters + attention);
  }
  return shape;
}

}  // namespace pipewright
