#include "sim/config/run_config.h"

#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/config/config_fields.h"

namespace pipewright {

RunConfig::RunConfig() = default;
RunConfig::RunConfig(const RunConfig&) = default;
RunConfig::RunConfig(RunConfig&&) noexcept = default;
RunConfig& RunConfig::operator=(const RunConfig&) = default;
RunConfig& RunConfig::operator=(RunConfig&&) noexcept = default;
RunConfig::~RunConfig() = default;

FieldPlace RunConfig::Field(absl::string_view path) const {
  const auto origin = origins.find(std::string(path));
  if (origin != origins.end()) return origin->second.Field(path);
  return ConfigOrigin{.file = source}.Field(path);
}

std::string ToString(const RunConfig& config) {
  std::string out;
  const auto line = [&out](absl::string_view path, absl::string_view value) {
    absl::StrAppend(&out, path, ": ", value, "\n");
  };
  for (const ConfigField& field : ConfigFields()) {
    if (field.kind == FieldKind::kPairs) {
      for (const auto& [key, value] : PairsOf(field, config)) {
        line(absl::StrCat(field.path, ".", key), value);
      }
    } else if (IsGiven(field, config)) {
      line(field.path, ValueOf(field, config));
    }
  }
  return out;
}

namespace {

// The user gave `backward`; its halves have been made of it.
bool IsHalfOfBackward(const RunConfig& config, const std::string& path) {
  const auto is_half = [&path](absl::string_view section) {
    return path == absl::StrCat(section, ".backward_input") ||
           path == absl::StrCat(section, ".backward_weight");
  };
  return (config.costs.backward_s && is_half("costs.uniform")) ||
         (!config.costs.stage_backward_s.empty() && is_half("costs.per_stage"));
}

}  // namespace

std::vector<std::string> GivenPaths(const RunConfig& config) {
  std::vector<std::string> paths;
  for (const ConfigField& field : ConfigFields()) {
    if (field.kind == FieldKind::kPairs) {
      for (const auto& [key, value] : PairsOf(field, config)) {
        paths.push_back(absl::StrCat(field.path, ".", key));
      }
    } else if (IsGiven(field, config) &&
               !IsHalfOfBackward(config, field.path)) {
      paths.push_back(field.path);
    }
  }
  return paths;
}

}  // namespace pipewright
