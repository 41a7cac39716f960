#include "sim/config/run_config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/config/run_config_fields.h"

namespace pipewright {
namespace {

class Printer {
 public:
  explicit Printer(std::string* out) : out_(out) {}

  void Text(const char* path, const std::optional<std::string>& value) {
    if (value) Line(path, *value);
  }
  template <typename Integer>
  void Int(const char* path, const std::optional<Integer>& value, int64_t,
           int64_t) {
    if (value) Line(path, absl::StrCat(*value));
  }
  void Real(const char* path, const std::optional<double>& value, double,
            double) {
    if (value) Line(path, Number(*value));
  }
  void Bool(const char* path, const std::optional<bool>& value) {
    if (value) Line(path, *value ? "true" : "false");
  }
  void Quantity(const char* path, const std::optional<double>& value, Unit unit,
                double = 0) {
    if (value) Line(path, absl::StrCat(Number(*value), " ", SiUnit(unit)));
  }
  void Quantities(const char* path, const std::vector<double>& values,
                  Unit unit) {
    std::string list;
    for (const double value : values) {
      absl::StrAppend(&list, list.empty() ? "" : ", ", Number(value), " ",
                      SiUnit(unit));
    }
    if (!values.empty()) Line(path, list);
  }
  void Reals(const char* path, const std::vector<double>& values,
             MayBeZero = kMayBeZero) {
    std::string list;
    for (const double value : values) {
      absl::StrAppend(&list, list.empty() ? "" : ", ", Number(value));
    }
    if (!values.empty()) Line(path, list);
  }
  void Ints(const char* path, const std::vector<int64_t>& values, int64_t,
            int64_t) {
    if (!values.empty()) Line(path, absl::StrJoin(values, ", "));
  }
  void Section(const char* path, bool given) {
    if (given) Line(path, "given");
  }
  void Texts(const char* path, const std::vector<std::string>& values) {
    std::string list;
    for (const std::string& value : values) {
      absl::StrAppend(&list, list.empty() ? "" : ", ", value);
    }
    if (!values.empty()) Line(path, list);
  }
  template <typename Enum>
  void Choice(const char* path, const std::optional<Enum>& value,
              const std::vector<ChoiceRow>& rows) {
    if (value) Line(path, ChoiceName(rows, *value));
  }
  void Pairs(const char* path, const std::map<std::string, std::string>& all) {
    for (const auto& [key, value] : all) {
      Line(absl::StrCat(path, ".", key), value);
    }
  }

 private:
  static std::string Number(double value) {
    return absl::StrFormat("%.17g", value);
  }
  void Line(absl::string_view path, absl::string_view value) {
    absl::StrAppend(out_, path, ": ", value, "\n");
  }

  std::string* out_;
};

// The paths of the fields that are given.
class GivenFields {
 public:
  std::vector<std::string> Take() && { return std::move(paths_); }

  template <typename Value, typename... Rest>
  void Text(const char* path, const Value& value, const Rest&...) {
    if (value) paths_.emplace_back(path);
  }
  template <typename Value, typename... Rest>
  void Int(const char* path, const Value& value, const Rest&...) {
    Text(path, value);
  }
  template <typename Value, typename... Rest>
  void Real(const char* path, const Value& value, const Rest&...) {
    Text(path, value);
  }
  template <typename Value, typename... Rest>
  void Bool(const char* path, const Value& value, const Rest&...) {
    Text(path, value);
  }
  template <typename Value, typename... Rest>
  void Quantity(const char* path, const Value& value, const Rest&...) {
    Text(path, value);
  }
  template <typename Value, typename... Rest>
  void Choice(const char* path, const Value& value, const Rest&...) {
    Text(path, value);
  }
  void Section(const char* path, bool given) { Text(path, given); }
  template <typename List, typename... Rest>
  void Texts(const char* path, const List& values, const Rest&...) {
    Text(path, !values.empty());
  }
  template <typename List, typename... Rest>
  void Ints(const char* path, const List& values, const Rest&...) {
    Texts(path, values);
  }
  template <typename List, typename... Rest>
  void Reals(const char* path, const List& values, const Rest&...) {
    Texts(path, values);
  }
  template <typename List, typename... Rest>
  void Quantities(const char* path, const List& values, const Rest&...) {
    Texts(path, values);
  }
  void Pairs(const char* path, const std::map<std::string, std::string>& all) {
    for (const auto& [key, value] : all) {
      paths_.push_back(absl::StrCat(path, ".", key));
    }
  }

 private:
  std::vector<std::string> paths_;
};

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
  Printer printer(&out);
  VisitFields(config, printer);
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
  GivenFields given;
  VisitFields(config, given);
  std::vector<std::string> paths = std::move(given).Take();
  std::erase_if(paths, [&config](const std::string& path) {
    return IsHalfOfBackward(config, path);
  });
  return paths;
}

}  // namespace pipewright
