// The rows of RunConfig's fields, which the build makes of
// sim/proto/config.proto, and what can be done with any field: print, compare,
// copy, take away.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "sim/base/quantity.h"
#include "sim/config/run_config.h"
#include "sim/model/model.h"

namespace pipewright {

// Member of RunConfig that holds a field of this kind.
enum class FieldKind : uint8_t {
  kText,        // optional<string>
  kTexts,       // vector<string>
  kBool,        // optional<bool>
  kInt,         // optional<int>
  kLong,        // optional<int64_t>
  kInts,        // vector<int64_t>
  kReal,        // optional<double>
  kReals,       // vector<double> of factors (kFactors)
  kQuantity,    // optional<double>, in the unit
  kQuantities,  // vector<double>, in the unit
  kChoice,      // optional<an enum>
  kPairs,       // map<string, string>
  kSection,     // bool: is the section there?
};

// Every value of a list of factors; 0 may be one, too.
struct FactorRange {
  double least = 1e-6;
  double most = 1e6;
};
inline constexpr FactorRange kFactors;

struct ConfigField {
  const char* path;  // "strategy.pp"
  FieldKind kind;
  const char* meaning;
  const char* fallback;  // "": none
  const char* needs;     // Field.needs, those of its sections first
  // "" without a flag. ConfigFlag (flags.h) says the same of the rest.
  const char* flag = "";
  const char* flag_value = "";
  const char* other_path = "";
  bool (*is_other)(const std::string& value) = nullptr;
  const char* alone = "";
  Unit unit = Unit::kNone;
  // Ends of kInt, kLong, kInts; of kReal and, if `most` is not 0, kQuantity.
  int64_t least_int = 0;
  int64_t most_int = 0;
  double least = 0;
  double most = 0;
  bool positive = false;  // kReals: 0 is none of them
  void* (*member)(RunConfig* config) = nullptr;
  const std::vector<ChoiceRow>& (*choices)() = nullptr;
  // Value of kChoice, as in ChoiceRow.
  std::optional<int> (*chosen)(const RunConfig& config) = nullptr;
  void (*choose)(std::optional<int> value, RunConfig* config) = nullptr;
};

absl::Span<const ConfigField> ConfigFields();

// What the number of the field at this path may be: "an integer from 1 to 8",
// "0 or a number from 1e-06 to 1e+06"; "" for all but numbers without a unit.
std::string NumbersOf(const ConfigField& field);

bool IsGiven(const ConfigField& field, const RunConfig& config);
bool SameField(const ConfigField& field, const RunConfig& one,
               const RunConfig& other);
void CopyField(const ConfigField& field, const RunConfig& from, RunConfig* to);
std::map<std::string, std::string>* PairsOf(const ConfigField& field,
                                            RunConfig* config);
inline const std::map<std::string, std::string>& PairsOf(
    const ConfigField& field, const RunConfig& config) {
  return *PairsOf(field, const_cast<RunConfig*>(&config));
}
// Value of a field that is given, as a configuration prints; "" for kPairs.
std::string ValueOf(const ConfigField& field, const RunConfig& config);
// As if nobody had given it.
void ClearField(const ConfigField& field, RunConfig* config);

// Calls `function` with the member, typed as FieldKind says; not for kChoice.
template <typename Function>
void WithMember(const ConfigField& field, RunConfig* config,
                Function&& function) {
  void* const member = field.member(config);
  switch (field.kind) {
    case FieldKind::kText:
      return function(*static_cast<std::optional<std::string>*>(member));
    case FieldKind::kTexts:
      return function(*static_cast<std::vector<std::string>*>(member));
    case FieldKind::kBool:
      return function(*static_cast<std::optional<bool>*>(member));
    case FieldKind::kInt:
      return function(*static_cast<std::optional<int>*>(member));
    case FieldKind::kLong:
      return function(*static_cast<std::optional<int64_t>*>(member));
    case FieldKind::kInts:
      return function(*static_cast<std::vector<int64_t>*>(member));
    case FieldKind::kReal:
    case FieldKind::kQuantity:
      return function(*static_cast<std::optional<double>*>(member));
    case FieldKind::kReals:
    case FieldKind::kQuantities:
      return function(*static_cast<std::vector<double>*>(member));
    case FieldKind::kPairs:
      return function(
          *static_cast<std::map<std::string, std::string>*>(member));
    case FieldKind::kSection:
      return function(*static_cast<bool*>(member));
    case FieldKind::kChoice:
      return;
  }
}
// The same of a configuration that stays as it is.
template <typename Function>
void WithMember(const ConfigField& field, const RunConfig& config,
                Function&& function) {
  WithMember(field, const_cast<RunConfig*>(&config),
             [&function](const auto& value) { function(value); });
}

// Sizes and properties of a model that the configuration can give.
struct ModelSizeRow {
  const char* path;
  std::optional<int64_t> ModelChoice::*given;
  int64_t ModelSpec::*size;
  int64_t least;  // 1: a model by hand needs it
  int64_t most;
};
struct ModelPropertyRow {
  const char* path;
  std::optional<bool> ModelChoice::*given;
  bool ModelSpec::*property;
};
const std::vector<ModelSizeRow>& ModelSizeRows();
const std::vector<ModelPropertyRow>& ModelPropertyRows();

}  // namespace pipewright
