#include "sim/config/config_values.h"

#include <google/protobuf/descriptor.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/names.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/config_message.h"
#include "sim/config/shape_params.h"

namespace pipewright {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

// "0" needs no unit, nor does what the name of its field says: hop_bytes.
std::string WithUnit(absl::string_view path, const std::string& text,
                     Unit unit) {
  double number = 0;
  if (!absl::SimpleAtod(text, &number)) return text;
  const bool named = unit == Unit::kBytes && absl::EndsWith(path, "_bytes");
  if (number != 0 && !named) return text;
  return absl::StrCat(text, unit == Unit::kTime    ? "s"
                            : unit == Unit::kBytes ? "B"
                                                   : "GBps");
}

// Reads each field of RunConfig out of the message; keeps the first error.
class Reader {
 public:
  Reader(const Message& root, RunConfig* config)
      : root_(root), config_(*config) {}

  const absl::Status& status() const { return status_; }

  void Read(const ConfigField& field, const FieldPath& path) {
    field_ = &field;
    at_ = path.In(root_);
    if (at_.message == nullptr) return;
    if (!at_.field->is_repeated() &&
        !at_.message->GetReflection()->HasField(*at_.message, at_.field)) {
      return;
    }
    if (field.kind == FieldKind::kChoice) {
      Choice();
    } else {
      WithMember(field, &config_, *this);
    }
  }

  void operator()(std::optional<std::string>& out) {
    out = Text();
    if (out->empty()) Fail("\"\"", "a name");
  }
  void operator()(std::optional<int>& out) {
    out = static_cast<int>(
        Within(reflection().GetInt32(*at_.message, at_.field)));
  }
  void operator()(std::optional<int64_t>& out) {
    out = Within(reflection().GetInt64(*at_.message, at_.field));
  }
  void operator()(std::optional<bool>& out) {
    out = reflection().GetBool(*at_.message, at_.field);
  }
  void operator()(bool& out) { out = true; }
  void operator()(std::optional<double>& out) {
    if (field_->kind == FieldKind::kQuantity) {
      const std::string text = Text();
      out = Quantity(text);
      if (field_->most > 0 && *out > field_->most) {
        Fail(text,
             absl::StrCat("0 to ", field_->most, " ", SiUnit(field_->unit)));
      }
      return;
    }
    const double value = reflection().GetDouble(*at_.message, at_.field);
    if (!std::isfinite(value) || value < field_->least ||
        value > field_->most) {
      Fail(absl::StrCat(value), NumbersOf(*field_));
    }
    out = value;
  }
  void operator()(std::vector<double>& out) {
    for (int index = 0; index < Size(); ++index) {
      out.push_back(field_->kind == FieldKind::kQuantities
                        ? Quantity(TextAt(index))
                        : FactorAt(index));
    }
  }
  void operator()(std::vector<int64_t>& out) {
    for (int index = 0; index < Size(); ++index) {
      out.push_back(Within(
          reflection().GetRepeatedInt64(*at_.message, at_.field, index)));
    }
  }
  void operator()(std::vector<std::string>& out) {
    for (int index = 0; index < Size(); ++index) out.push_back(TextAt(index));
  }
  void operator()(std::map<std::string, std::string>& out) {
    for (int index = 0; index < Size(); ++index) {
      const Message& pair =
          reflection().GetRepeatedMessage(*at_.message, at_.field, index);
      const auto* descriptor = pair.GetDescriptor();
      const auto* inner = pair.GetReflection();
      const std::string key = inner->GetString(pair, descriptor->field(0));
      const bool inserted =
          out.emplace(key, inner->GetString(pair, descriptor->field(1))).second;
      if (!inserted) Fail(key, "each key once");
    }
  }

 private:
  const google::protobuf::Reflection& reflection() const {
    return *at_.message->GetReflection();
  }
  int Size() const { return reflection().FieldSize(*at_.message, at_.field); }
  std::string Text() const {
    return reflection().GetString(*at_.message, at_.field);
  }
  std::string TextAt(int index) const {
    return reflection().GetRepeatedString(*at_.message, at_.field, index);
  }

  void Choice() {
    const std::string name = Text();
    if (name.empty()) return Fail("\"\"", "a name");
    std::vector<std::string> available;
    for (const ChoiceRow& row : field_->choices()) {
      if (row.available) available.push_back(row.name);
    }
    for (const ChoiceRow& row : field_->choices()) {
      if (name != row.name) continue;
      if (row.available) return field_->choose(row.value, &config_);
      return Keep(LaterValue(config_.Field(field_->path), name,
                             absl::StrJoin(available, ", ")));
    }
    Keep(Prefix(config_.Field(field_->path),
                UnknownName("value", name, available)));
  }

  int64_t Within(int64_t value) {
    if (value < field_->least_int || value > field_->most_int) {
      Fail(absl::StrCat(value), NumbersOf(*field_));
    }
    return value;
  }
  double FactorAt(int index) {
    const double value =
        reflection().GetRepeatedDouble(*at_.message, at_.field, index);
    const bool within = value >= kFactors.least && value <= kFactors.most;
    if (!within && (value != 0 || field_->positive)) {
      Fail(absl::StrCat(value), NumbersOf(*field_));
    }
    return value;
  }
  double Quantity(const std::string& text) {
    const absl::StatusOr<double> value =
        ParseQuantity(WithUnit(field_->path, text, field_->unit), field_->unit);
    Keep(Prefix(config_.Field(field_->path), value.status()));
    if (!value.ok()) return 0;
    Keep(Prefix(config_.Field(field_->path),
                CheckAmount(*value, text, field_->unit)));
    return *value;
  }

  void Fail(absl::string_view value, absl::string_view allowed) {
    Keep(BadValue(config_.Field(field_->path), value, allowed));
  }
  void Keep(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  const Message& root_;
  RunConfig& config_;
  const ConfigField* field_ = nullptr;
  FieldAt at_ = {nullptr, nullptr};
  absl::Status status_;
};

// Where the fields are in every message: found by name once.
const std::vector<FieldPath>& Places(const Message& root) {
  static const auto* const places = [&root] {
    auto* all = new std::vector<FieldPath>;
    for (const ConfigField& field : ConfigFields()) {
      all->emplace_back(root.GetDescriptor(), field.path);
    }
    return all;
  }();
  return *places;
}

}  // namespace

absl::Status ReadFields(const Message& root, RunConfig* config) {
  Reader reader(root, config);
  size_t index = 0;
  for (const ConfigField& field : ConfigFields()) {
    reader.Read(field, Places(root)[index++]);
  }
  return reader.status();
}

std::string NumbersAt(absl::string_view path) {
  for (const ConfigField& field : ConfigFields()) {
    if (path == field.path) return NumbersOf(field);
  }
  return ShapeParamNumbersAt(path);
}

}  // namespace pipewright
