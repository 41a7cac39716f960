#include "sim/config/config_fields.h"

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/check.h"

namespace pipewright {
namespace {

// Rows of a table whose rows have a name and a value.
template <typename Table, typename Value>
std::vector<ChoiceRow> RowsOf(const Table& table, const Value& value) {
  std::vector<ChoiceRow> rows;
  for (const auto& row : table) {
    rows.push_back({row.name, static_cast<int>(value(row))});
  }
  return rows;
}

template <typename Value>
bool Holds(const std::optional<Value>& value) {
  return value.has_value();
}
template <typename List>
bool Holds(const List& list) {
  return !list.empty();
}
bool Holds(bool given) { return given; }

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

}  // namespace

const std::vector<ChoiceRow>& DataParallelChoices() {
  static const std::vector<ChoiceRow> rows = [] {
    std::vector<ChoiceRow> all =
        RowsOf(kDataParallelModes, [](const auto& row) { return row.mode; });
    for (const char* name : {"hsdp", "hpz"}) all.push_back({name, 0, false});
    return all;
  }();
  return rows;
}

const std::vector<ChoiceRow>& OptimizerPlacementChoices() {
  static const std::vector<ChoiceRow> rows = RowsOf(
      kOptimizerPlacements, [](const auto& row) { return row.placement; });
  return rows;
}

const std::vector<ChoiceRow>& PackerChoices() {
  static const std::vector<ChoiceRow> rows =
      RowsOf(kPackers, [](const auto& row) { return row.packer; });
  return rows;
}

const std::vector<ChoiceRow>& GraphPartChoices() {
  static const std::vector<ChoiceRow> rows = {
      {"attention", static_cast<int>(OpPart::kAttention)},
      {"dense", static_cast<int>(OpPart::kDense)},
      {"router", static_cast<int>(OpPart::kRouter)},
      {"experts", static_cast<int>(OpPart::kExperts)},
  };
  return rows;
}

const std::vector<ChoiceRow>& RecomputeModuleChoices() {
  using Module = RecomputeModule;
  static const std::vector<ChoiceRow> rows = {
      {"core_attn", static_cast<int>(Module::kCoreAttention)},
      {"moe_act", static_cast<int>(Module::kExpertActivation)},
      {"layernorm", static_cast<int>(Module::kNorms)},
      {"mla_up_proj", static_cast<int>(Module::kLatentUp)},
      {"mlp", static_cast<int>(Module::kDense)},
      {"moe", static_cast<int>(Module::kExperts)},
      {"shared_experts", static_cast<int>(Module::kSharedExperts)},
  };
  return rows;
}

std::string NumbersOf(const ConfigField& field) {
  switch (field.kind) {
    case FieldKind::kInt:
    case FieldKind::kLong:
      return absl::StrCat("an integer from ", field.least_int, " to ",
                          field.most_int);
    case FieldKind::kInts:
      return absl::StrCat("integers from ", field.least_int, " to ",
                          field.most_int);
    case FieldKind::kReal:
      return absl::StrCat("a number from ", field.least, " to ", field.most);
    case FieldKind::kReals:
      return absl::StrCat(field.positive ? "a number" : "0 or a number",
                          " from ", kFactors.least, " to ", kFactors.most);
    default:
      return "";
  }
}

bool IsGiven(const ConfigField& field, const RunConfig& config) {
  if (field.kind == FieldKind::kChoice) {
    return field.chosen(config).has_value();
  }
  bool given = false;
  WithMember(field, config, [&](const auto& value) { given = Holds(value); });
  return given;
}

bool SameField(const ConfigField& field, const RunConfig& one,
               const RunConfig& other) {
  if (field.kind == FieldKind::kChoice) {
    return field.chosen(one) == field.chosen(other);
  }
  bool same = false;
  WithMember(field, one, [&](const auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    same = value ==
           *static_cast<Value*>(field.member(const_cast<RunConfig*>(&other)));
  });
  return same;
}

void CopyField(const ConfigField& field, const RunConfig& from, RunConfig* to) {
  if (field.kind == FieldKind::kChoice) {
    return field.choose(field.chosen(from), to);
  }
  WithMember(field, from, [&](const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    *static_cast<Value*>(field.member(to)) = value;
  });
}

std::map<std::string, std::string>* PairsOf(const ConfigField& field,
                                            RunConfig* config) {
  PW_CHECK(field.kind == FieldKind::kPairs);
  return static_cast<std::map<std::string, std::string>*>(field.member(config));
}

std::string ValueOf(const ConfigField& field, const RunConfig& config) {
  if (field.kind == FieldKind::kChoice) {
    return ChoiceName(field.choices(), *field.chosen(config));
  }
  Words words(field);
  WithMember(field, config, words);
  return words.text();
}

void ClearField(const ConfigField& field, RunConfig* config) {
  if (field.kind == FieldKind::kChoice) return field.choose({}, config);
  WithMember(field, config, [](auto& value) { value = {}; });
}

}  // namespace pipewright
