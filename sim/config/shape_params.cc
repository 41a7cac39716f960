#include "sim/config/shape_params.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

absl::Status CheckKey(const RunConfig& config, const std::string& key) {
  std::set<std::string> known;
  for (const ShapeInfo* shape : AllShapes()) {
    for (const ShapeParam& param : shape->params) known.insert(param.key);
  }
  for (const ShapeParam& param : NodeParams()) known.insert(param.key);
  if (known.count(key) > 0) return absl::OkStatus();
  return Prefix(config.Field(absl::StrCat("system.params.", key)),
                UnknownName("parameter of a shape or a node", key,
                            {known.begin(), known.end()}));
}

}  // namespace

absl::Status CheckShapeParams(const RunConfig& config) {
  for (const auto& [key, value] : config.system.params) {
    PW_RETURN_IF_ERROR(CheckKey(config, key));
    const FieldPlace field = config.Field(absl::StrCat("system.params.", key));
    absl::Status refusal;
    for (const ShapeInfo* shape : ShapesWithParam(key)) {
      const ShapeParam& param = *FindShapeParam(*shape, key);
      if (CheckShapeParam(param, "", value).ok()) {
        refusal = absl::OkStatus();
        break;
      }
      // The shape that the run is on, of several, says what is allowed.
      if (refusal.ok() || shape->name == config.system.shape) {
        refusal = BadValue(field, value, AllowedValues(param));
      }
    }
    PW_RETURN_IF_ERROR(refusal);
  }
  return absl::OkStatus();
}

std::string ShapeParamNumbersAt(absl::string_view path) {
  if (!absl::StartsWith(path, "system.")) return "";
  const absl::string_view key = path.substr(path.rfind('.') + 1);
  const std::vector<const ShapeInfo*> shapes = ShapesWithParam(key);
  return shapes.empty() ? "" : AllowedValues(*FindShapeParam(*shapes[0], key));
}

void OverlayShapeParams(const SystemChoice& given, ShapeParams* params) {
  ShapeParamValues all = std::move(params->own);
  params->own.clear();
  for (const auto& [key, value] : given.params) {
    all[key] = value;
    params->sources.Erase(absl::StrCat("params.", key));
  }
  const ShapeInfo* shape = FindShape(params->shape);
  if (shape == nullptr) return;  // BuildCluster refuses it
  for (const auto& [key, value] : all) {
    if (FindShapeParam(*shape, key) != nullptr) params->own[key] = value;
  }
}

std::vector<const ShapeInfo*> ShapesWithParam(absl::string_view key) {
  std::vector<const ShapeInfo*> shapes;
  for (const ShapeInfo* shape : AllShapes()) {
    if (FindShapeParam(*shape, key) != nullptr) shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace pipewright
