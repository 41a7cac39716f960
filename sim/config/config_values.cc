#include "sim/config/config_values.h"

#include <google/protobuf/descriptor.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <type_traits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/names.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/config_message.h"
#include "sim/config/ignored_fields.h"
#include "sim/config/run_config_fields.h"
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

std::string Integers(int64_t minimum, int64_t maximum) {
  return absl::StrCat("an integer from ", minimum, " to ", maximum);
}

// The same of each of a list.
std::string IntegersOf(int64_t minimum, int64_t maximum) {
  return absl::StrCat("integers from ", minimum, " to ", maximum);
}

std::string Numbers(double minimum, double maximum) {
  return absl::StrCat("a number from ", minimum, " to ", maximum);
}

std::string Factors(MayBeZero zero) {
  return absl::StrCat(zero == kMayBeZero ? "0 or a number" : "a number",
                      " from ", kFactors.least, " to ", kFactors.most);
}

// What a number may be, by the path of its field.
class Ranges : public IgnoredFields {
 public:
  Ranges() {
    const RunConfig none;
    VisitFields(none, *this);
  }

  std::string Of(absl::string_view path) const {
    const auto found = words_.find(std::string(path));
    return found == words_.end() ? "" : found->second;
  }

  template <typename Integer>
  void Int(const char* path, const std::optional<Integer>&, int64_t minimum,
           int64_t maximum) {
    words_[path] = Integers(minimum, maximum);
  }
  void Ints(const char* path, const std::vector<int64_t>&, int64_t minimum,
            int64_t maximum) {
    words_[path] = IntegersOf(minimum, maximum);
  }
  void Real(const char* path, const std::optional<double>&, double minimum,
            double maximum) {
    words_[path] = Numbers(minimum, maximum);
  }
  void Reals(const char* path, const std::vector<double>&,
             MayBeZero zero = kMayBeZero) {
    words_[path] = Factors(zero);
  }

 private:
  std::map<std::string, std::string> words_;
};

// Reads each field of RunConfig out of the message; keeps the first error.
class Reader {
 public:
  Reader(const Message& root, const RunConfig& config)
      : root_(root), config_(config) {}

  const absl::Status& status() const { return status_; }

  void Text(const char* path, std::optional<std::string>& out) {
    const FieldAt at = FindField(root_, path);
    if (!Has(at)) return;
    out = at.message->GetReflection()->GetString(*at.message, at.field);
    if (out->empty()) Fail(path, "\"\"", "a name");
  }
  template <typename Integer>
  void Int(const char* path, std::optional<Integer>& out, int64_t minimum,
           int64_t maximum) {
    const FieldAt at = FindField(root_, path);
    if (!Has(at)) return;
    const auto* reflection = at.message->GetReflection();
    Integer value = 0;
    if constexpr (std::is_same_v<Integer, int64_t>) {
      value = reflection->GetInt64(*at.message, at.field);
    } else {
      value = reflection->GetInt32(*at.message, at.field);
    }
    if (value < minimum || value > maximum) {
      Fail(path, absl::StrCat(value), Integers(minimum, maximum));
    }
    out = value;
  }
  void Real(const char* path, std::optional<double>& out, double minimum,
            double maximum) {
    const FieldAt at = FindField(root_, path);
    if (!Has(at)) return;
    const double value =
        at.message->GetReflection()->GetDouble(*at.message, at.field);
    if (!std::isfinite(value) || value < minimum || value > maximum) {
      Fail(path, absl::StrCat(value), Numbers(minimum, maximum));
    }
    out = value;
  }
  void Bool(const char* path, std::optional<bool>& out) {
    const FieldAt at = FindField(root_, path);
    if (!Has(at)) return;
    out = at.message->GetReflection()->GetBool(*at.message, at.field);
  }
  void Quantity(const char* path, std::optional<double>& out, Unit unit,
                double most = std::numeric_limits<double>::infinity()) {
    const FieldAt at = FindField(root_, path);
    if (!Has(at)) return;
    const std::string text =
        at.message->GetReflection()->GetString(*at.message, at.field);
    out = Parse(path, text, unit);
    if (*out > most) {
      Fail(path, text, absl::StrCat("0 to ", most, " ", SiUnit(unit)));
    }
  }
  void Quantities(const char* path, std::vector<double>& out, Unit unit) {
    std::vector<std::string> texts;
    Texts(path, texts);
    for (const std::string& text : texts) {
      out.push_back(Parse(path, text, unit));
    }
  }
  void Reals(const char* path, std::vector<double>& out,
             MayBeZero zero = kMayBeZero) {
    const FieldAt at = FindField(root_, path);
    if (at.message == nullptr) return;
    const auto* reflection = at.message->GetReflection();
    const int count = reflection->FieldSize(*at.message, at.field);
    for (int index = 0; index < count; ++index) {
      const double value =
          reflection->GetRepeatedDouble(*at.message, at.field, index);
      const bool within = value >= kFactors.least && value <= kFactors.most;
      if (!within && (value != 0 || zero == kNeverZero)) {
        Fail(path, absl::StrCat(value), Factors(zero));
      }
      out.push_back(value);
    }
  }
  void Ints(const char* path, std::vector<int64_t>& out, int64_t minimum,
            int64_t maximum) {
    const FieldAt at = FindField(root_, path);
    if (at.message == nullptr) return;
    const auto* reflection = at.message->GetReflection();
    const int count = reflection->FieldSize(*at.message, at.field);
    for (int index = 0; index < count; ++index) {
      const int64_t value =
          reflection->GetRepeatedInt64(*at.message, at.field, index);
      if (value < minimum || value > maximum) {
        Fail(path, absl::StrCat(value), IntegersOf(minimum, maximum));
      }
      out.push_back(value);
    }
  }
  void Section(const char* path, bool& out) {
    out = Has(FindField(root_, path));
  }
  void Texts(const char* path, std::vector<std::string>& out) {
    const FieldAt at = FindField(root_, path);
    if (at.message == nullptr) return;
    const auto* reflection = at.message->GetReflection();
    const int count = reflection->FieldSize(*at.message, at.field);
    for (int index = 0; index < count; ++index) {
      out.push_back(
          reflection->GetRepeatedString(*at.message, at.field, index));
    }
  }
  template <typename Enum>
  void Choice(const char* path, std::optional<Enum>& out,
              const std::vector<ChoiceRow>& rows) {
    std::optional<std::string> name;
    Text(path, name);
    if (!name) return;
    std::vector<std::string> available;
    for (const ChoiceRow& row : rows) {
      if (row.available) available.push_back(row.name);
    }
    for (const ChoiceRow& row : rows) {
      if (*name != row.name) continue;
      if (row.available) {
        out = static_cast<Enum>(row.value);
      } else {
        Keep(LaterValue(config_.Field(path), *name,
                        absl::StrJoin(available, ", ")));
      }
      return;
    }
    Keep(Prefix(config_.Field(path), UnknownName("value", *name, available)));
  }
  void Pairs(const char* path, std::map<std::string, std::string>& out) {
    const FieldAt at = FindField(root_, path);
    if (at.message == nullptr) return;
    const auto* reflection = at.message->GetReflection();
    const int count = reflection->FieldSize(*at.message, at.field);
    for (int index = 0; index < count; ++index) {
      const Message& pair =
          reflection->GetRepeatedMessage(*at.message, at.field, index);
      const auto* descriptor = pair.GetDescriptor();
      const auto* inner = pair.GetReflection();
      const std::string key = inner->GetString(pair, descriptor->field(0));
      const bool inserted =
          out.emplace(key, inner->GetString(pair, descriptor->field(1))).second;
      if (!inserted) Fail(path, key, "each key once");
    }
  }

 private:
  static bool Has(const FieldAt& at) {
    return at.message != nullptr &&
           at.message->GetReflection()->HasField(*at.message, at.field);
  }
  double Parse(const char* path, const std::string& text, Unit unit) {
    const absl::StatusOr<double> value =
        ParseQuantity(WithUnit(path, text, unit), unit);
    Keep(Prefix(config_.Field(path), value.status()));
    if (!value.ok()) return 0;
    Keep(Prefix(config_.Field(path), CheckAmount(*value, text, unit)));
    return *value;
  }
  void Fail(const char* path, absl::string_view value,
            absl::string_view allowed) {
    Keep(BadValue(config_.Field(path), value, allowed));
  }
  void Keep(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  const Message& root_;
  const RunConfig& config_;
  absl::Status status_;
};

}  // namespace

absl::Status ReadFields(const Message& root, RunConfig* config) {
  Reader reader(root, *config);
  VisitFields(*config, reader);
  return reader.status();
}

std::string NumbersAt(absl::string_view path) {
  static const auto* const ranges = new Ranges();
  const std::string words = ranges->Of(path);
  return words.empty() ? ShapeParamNumbersAt(path) : words;
}

}  // namespace pipewright
