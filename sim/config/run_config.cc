#include "sim/config/run_config.h"

#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/config/config_fields.h"

namespace pipewright {
namespace {

// The value of a field that is given, as ToString has it.
class Words {
 public:
  explicit Words(const ConfigField& field)
      : unit_(field.unit == Unit::kNone
                  ? ""
                  : absl::StrCat(" ", SiUnit(field.unit))) {}

  const std::string& text() const { return text_; }

  void operator()(const std::optional<std::string>& value) { text_ = *value; }
  void operator()(const std::optional<bool>& value) {
    text_ = *value ? "true" : "false";
  }
  template <typename Integer>
  void operator()(const std::optional<Integer>& value) {
    text_ = absl::StrCat(*value);
  }
  void operator()(const std::optional<double>& value) { text_ = Real(*value); }
  void operator()(const std::vector<double>& values) {
    text_ = absl::StrJoin(values, ", ", [this](std::string* out, double value) {
      absl::StrAppend(out, Real(value));
    });
  }
  template <typename Value>
  void operator()(const std::vector<Value>& values) {
    text_ = absl::StrJoin(values, ", ");
  }
  void operator()(const std::map<std::string, std::string>&) {}
  void operator()(bool) { text_ = "given"; }

 private:
  std::string Real(double value) const {
    return absl::StrFormat("%.17g%s", value, unit_);
  }

  std::string unit_;
  std::string text_;
};

std::string ValueOf(const ConfigField& field, const RunConfig& config) {
  if (field.kind == FieldKind::kChoice) {
    return ChoiceName(field.choices(), *field.chosen(config));
  }
  Words words(field);
  WithMember(field, config, words);
  return words.text();
}

}  // namespace

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
