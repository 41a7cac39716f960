#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {
namespace {

// Of one element of an activation: bf16.
constexpr double kActivationBytes = 2;
// Main gradients in fp32, parameters in bf16: Megatron-LM's mixed precision
// (arXiv 2205.05198, section 4).
constexpr int kGradientBytes = 4;
constexpr int kParameterBytes = 2;

bool AnyField(const ModelChoice& model) {
  return model.preset || model.layers || model.hidden || model.heads ||
         model.kv_heads || model.ffn_hidden || model.gated ||
         model.vocabulary || model.sequence || model.tied_embeddings;
}

absl::Status Overlay(absl::string_view field,
                     const std::optional<int64_t>& given, int64_t* size) {
  if (given) *size = *given;
  if (*size > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model.", field, ": missing; allowed: model.preset, or ",
                   "layers, hidden, heads, ffn_hidden, vocabulary and ",
                   "sequence together"));
}

// The divisors of `layers` / vpp nearest to pp, from below and above.
std::string WorkingPp(int64_t layers, const RunSizes& sizes) {
  if (layers % sizes.vpp != 0) {
    return absl::StrCat("layers that vpp = ", sizes.vpp, " divides");
  }
  const int64_t chunks = layers / sizes.vpp;
  int64_t below = sizes.pp;
  while (below > 1 && chunks % below != 0) --below;
  int64_t above = sizes.pp;
  while (above < chunks && chunks % above != 0) ++above;
  std::vector<int64_t> working = {below};
  if (above > sizes.pp && chunks % above == 0) working.push_back(above);
  return absl::StrCat("layers that pp * vpp divides; the nearest pp for ",
                      layers, " layers and vpp = ", sizes.vpp, ": ",
                      absl::StrJoin(working, ", "));
}

}  // namespace

absl::StatusOr<std::optional<ModelSpec>> PrepareModel(const RunConfig& config,
                                                      const RunSizes& sizes) {
  const ModelChoice& given = config.model;
  if (!AnyField(given)) return std::optional<ModelSpec>();
  ModelSpec model;
  if (given.preset) {
    const absl::StatusOr<ModelSpec> preset = FindModel(*given.preset);
    PW_RETURN_IF_ERROR(Prefix(config.Field("model.preset"), preset.status()));
    model = *preset;
  }
  PW_RETURN_IF_ERROR(Overlay("layers", given.layers, &model.layers));
  PW_RETURN_IF_ERROR(Overlay("hidden", given.hidden, &model.hidden));
  PW_RETURN_IF_ERROR(Overlay("heads", given.heads, &model.heads));
  if (given.heads && !given.kv_heads) model.kv_heads = *given.heads;
  PW_RETURN_IF_ERROR(Overlay("kv_heads", given.kv_heads, &model.kv_heads));
  PW_RETURN_IF_ERROR(
      Overlay("ffn_hidden", given.ffn_hidden, &model.ffn_hidden));
  PW_RETURN_IF_ERROR(
      Overlay("vocabulary", given.vocabulary, &model.vocabulary));
  PW_RETURN_IF_ERROR(Overlay("sequence", given.sequence, &model.sequence));
  model.gated = given.gated.value_or(model.gated);
  model.tied_embeddings = given.tied_embeddings.value_or(model.tied_embeddings);
  PW_RETURN_IF_ERROR(CheckModel(model));
  const int64_t stages = int64_t{sizes.pp} * sizes.vpp;
  if (model.layers % stages != 0) {
    const bool vpp_fits = model.layers % sizes.vpp == 0;
    return BadValue(
        config.Field(vpp_fits ? "strategy.pp" : "strategy.vpp"),
        absl::StrCat("pp * vpp = ", sizes.pp, " * ", sizes.vpp, " = ", stages),
        WorkingPp(model.layers, sizes));
  }
  return std::optional<ModelSpec>(model);
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

double PrepareHopBytes(const RunConfig& config, const RunSizes& sizes,
                       const std::optional<ModelSpec>& model) {
  if (config.costs.hop_bytes) return *config.costs.hop_bytes;
  if (!model) return 0;
  return *MicrobatchTokens(config, model) / sizes.slices *
         static_cast<double>(model->hidden) * kActivationBytes;
}

std::vector<double> GradientBytes(const RunConfig& config,
                                  const RunSizes& sizes,
                                  const std::optional<ModelSpec>& model) {
  const int stages = sizes.pp * sizes.vpp;
  if (config.costs.gradient_bytes) {
    return std::vector<double>(stages,
                               *config.costs.gradient_bytes / sizes.vpp);
  }
  std::vector<double> bytes;
  if (!model) return bytes;
  const int64_t layers = model->layers / stages;
  const int each =
      config.strategy.gradient_bytes_per_parameter.value_or(kGradientBytes);
  for (int stage = 0; stage < stages; ++stage) {
    double parameters = 0;
    for (int64_t layer = 0; layer < layers; ++layer) {
      parameters += model->LayerParameters(stage * layers + layer);
    }
    if (stage == 0) parameters += model->EmbeddingParameters();
    if (stage == stages - 1) {
      parameters += model->HeadParameters();
      // A tied table on two stages is stored twice.
      if (model->tied_embeddings && stages > 1) {
        parameters += static_cast<double>(model->vocabulary) *
                      static_cast<double>(model->hidden);
      }
    }
    bytes.push_back(each * parameters);
  }
  return bytes;
}

double ParametersPerGradientByte(const RunConfig& config) {
  return static_cast<double>(
             config.strategy.parameter_bytes_per_parameter.value_or(
                 kParameterBytes)) /
         config.strategy.gradient_bytes_per_parameter.value_or(kGradientBytes);
}

}  // namespace pipewright
