// What all targets of EmitArgs share.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/foreign/emission.h"
#include "sim/foreign/foreign_args.h"

namespace pipewright {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

// Fields with the texts that ToString and --set have for them.
Fields FieldsOf(const RunConfig& config) {
  const std::vector<std::string> given = GivenPaths(config);
  const std::set<std::string> paths(given.begin(), given.end());
  Fields fields;
  for (const absl::string_view line :
       absl::StrSplit(ToString(config), '\n', absl::SkipEmpty())) {
    const size_t split = line.find(": ");
    if (split == absl::string_view::npos) continue;
    const std::string path(line.substr(0, split));
    if (paths.count(path) == 0) continue;
    std::string value(line.substr(split + 2));
    if (path == "costs.analytic") {
      if (config.costs.analytic_device) continue;
      fields.emplace_back("costs.analytic.device", "auto");
      continue;
    }
    fields.emplace_back(path, std::move(value));
  }
  return fields;
}

// Those that the target's words do not say.
Fields NotHeld(const Emission& emission) {
  Fields fields = FieldsOf(emission.config);
  std::erase_if(fields, [&](const auto& field) {
    return emission.held.count(field.first) > 0;
  });
  return fields;
}

int64_t DenseWidth(const ModelSpec& model) {
  const bool has_dense = !model.has_experts() || model.first_dense_layers > 0 ||
                         model.expert_layer_every > 1;
  return has_dense ? model.ffn_hidden : 0;
}

}  // namespace

void Emission::HoldModel() {
  Hold({"model.preset", "model.hf", "model.pattern"});
  for (const ModelSizeRow& row : ModelSizeRows()) held.insert(row.path);
  for (const ModelPropertyRow& row : ModelPropertyRows()) held.insert(row.path);
}

std::string Emission::Comments() const {
  std::string text;
  for (const auto& [path, value] : NotHeld(*this)) {
    absl::StrAppend(&text, kCommentMark, path, "=", value, "\n");
  }
  return text;
}

absl::Status RefuseUnsayable(absl::string_view target,
                             const std::vector<Unsayable>& all) {
  for (const Unsayable& each : all) {
    if (!each.holds) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--emit ", target, ": its file cannot say ", each.what));
  }
  return absl::OkStatus();
}

bool IsSameModel(const ModelSpec& one, const ModelSpec& other) {
  for (const ModelSizeRow& row : ModelSizeRows()) {
    const absl::string_view path = row.path;
    if (path == "model.sequence" || path == "model.mtp_layers" ||
        path == "model.head_dim" || path == "model.ffn_hidden") {
      continue;
    }
    if (one.*row.size != other.*row.size) return false;
  }
  for (const ModelPropertyRow& row : ModelPropertyRows()) {
    if (one.*row.property != other.*row.property) return false;
  }
  if (one.kinds != other.kinds) return false;
  // Without latent attention no head size means one that follows; without
  // dense layers their width says nothing.
  return (one.has_mla() || one.HeadDim() == other.HeadDim()) &&
         DenseWidth(one) == DenseWidth(other);
}

absl::StatusOr<EmittedArgs> EmitArgs(const RunConfig& config,
                                     const PreparedRun& run, ForeignForm form,
                                     const std::string& csv) {
  if (!run.prepared_model) {
    return absl::InvalidArgumentError(
        "--emit needs a model (--model), whose sizes it writes");
  }
  // The arguments are read as strategy.data_parallel, of which strategy.zero is
  // another word: both in one file could contradict each other.
  RunConfig written = config;
  if (written.strategy.zero) {
    written.strategy.data_parallel = DataParallelOf(written.strategy);
    written.strategy.zero.reset();
  }
  Emission emission = {written, run, run.prepared_model->spec,
                       run.prepared_model->training, csv};
  switch (form) {
    case ForeignForm::kMegatron:
      PW_RETURN_IF_ERROR(EmitMegatron(&emission));
      break;
    case ForeignForm::kBridge:
      PW_RETURN_IF_ERROR(EmitBridge(&emission));
      break;
    case ForeignForm::kTorchtitan:
    case ForeignForm::kTorchtitanToml:
      PW_RETURN_IF_ERROR(EmitTitan(&emission, form));
      break;
    case ForeignForm::kDeepSpeed:
      PW_RETURN_IF_ERROR(EmitDeepSpeed(&emission));
      break;
  }
  emission.out.beside = NotHeld(emission);
  return std::move(emission.out);
}

}  // namespace pipewright
