#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/check.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/base/text_proto.h"
#include "sim/profile/fields.h"
#include "sim/profile/profile.h"
#include "sim/proto/profile.pb.h"

namespace pipewright {
namespace {

// Far beyond any device, in bytes, parameters and tokens; and of times in
// microseconds 30000 years.
constexpr int64_t kMostCount = int64_t{1} << 50;
constexpr double kMostNumber = 1e18;

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;
using Names = std::vector<std::string>;

constexpr double kMicrosPerSecond = 1e6;

const FieldDescriptor* FieldOf(const Message& message, const char* name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  PW_CHECK(field != nullptr);
  return field;
}

// Nine digits: more than any clock gives, and few enough that what is read
// is written again as it stood, whatever the unit was in between.
double Rounded(double value) {
  double rounded = 0;
  PW_CHECK(absl::SimpleAtod(absl::StrFormat("%.9g", value), &rounded));
  return rounded;
}

// Takes a message's fields into a struct; keeps the first error.
class Reader {
 public:
  using Tree = TextFormat::ParseInfoTree;

  // `line`: where the message stands, for what is missing inside it.
  Reader(absl::string_view source, const Message& message, const Tree* tree,
         std::string path, int line)
      : source_(source),
        message_(message),
        tree_(tree),
        path_(std::move(path)),
        line_(line) {}

  const absl::Status& status() const { return status_; }

  template <class Integer>
  void Count(const char* name, Integer* value, int64_t least = 0) {
    *value = static_cast<Integer>(GetInteger(name));
    const int64_t most =
        std::min<int64_t>(kMostCount, std::numeric_limits<Integer>::max());
    if (*value < least) {
      Refuse(name, -1, absl::StrCat(*value), absl::StrCat(least, " or more"));
    }
    if (*value > most) {
      Refuse(name, -1, absl::StrCat(*value), absl::StrCat("at most ", most));
    }
  }
  // Below 0: not known.
  void Reading(const char* name, int32_t* value) {
    *value = static_cast<int32_t>(GetInteger(name));
  }
  void Reading(const char* name, int64_t* value) { *value = GetInteger(name); }
  void Reading(const char* name, double* value) {
    *value = reflection().GetDouble(message_, FieldOf(message_, name));
    if (!std::isfinite(*value)) {
      Refuse(name, -1, absl::StrCat(*value), "a finite number");
    }
  }
  void Counts(const char* name, std::vector<int64_t>* values) {
    const FieldDescriptor* field = FieldOf(message_, name);
    for (int index = 0; index < Size(field); ++index) {
      values->push_back(reflection().GetRepeatedInt64(message_, field, index));
      if (values->back() < 0) {
        Refuse(name, index, absl::StrCat(values->back()), "0 or more");
      }
      if (values->back() > kMostCount) {
        Refuse(name, index, absl::StrCat(values->back()),
               absl::StrCat("at most ", kMostCount));
      }
    }
  }
  void Number(const char* name, double* value, double unit = 1) {
    *value = unit *
             Checked(name, -1,
                     reflection().GetDouble(message_, FieldOf(message_, name)));
  }
  void Time(const char* name, double* value) {
    *value =
        Checked(name, -1,
                reflection().GetDouble(message_, FieldOf(message_, name))) /
        kMicrosPerSecond;
  }
  void Times(const char* name, std::vector<double>* values) {
    const FieldDescriptor* field = FieldOf(message_, name);
    for (int index = 0; index < Size(field); ++index) {
      values->push_back(
          Checked(name, index,
                  reflection().GetRepeatedDouble(message_, field, index)) /
          kMicrosPerSecond);
    }
  }
  void Flag(const char* name, bool* value) {
    *value = reflection().GetBool(message_, FieldOf(message_, name));
  }
  void Text(const char* name, std::string* value) {
    *value = reflection().GetString(message_, FieldOf(message_, name));
  }
  void Texts(const char* name, std::vector<std::string>* values) {
    const FieldDescriptor* field = FieldOf(message_, name);
    for (int index = 0; index < Size(field); ++index) {
      values->push_back(reflection().GetRepeatedString(message_, field, index));
    }
  }
  void Choice(const char* name, std::string* value, const Names& allowed) {
    Text(name, value);
    for (const std::string& known : allowed) {
      if (*value == known) return;
    }
    Refuse(name, -1, absl::StrCat("'", *value, "'"),
           absl::StrJoin(allowed, ", "));
  }
  template <class Choices>
  void Enum(const char* name, Choices* value, int count,
            absl::string_view (*name_of)(Choices)) {
    Names allowed;
    for (int index = 0; index < count; ++index) {
      allowed.push_back(std::string(name_of(static_cast<Choices>(index))));
    }
    std::string text;
    Choice(name, &text, allowed);
    for (int index = 0; index < count; ++index) {
      if (text == allowed[index]) *value = static_cast<Choices>(index);
    }
  }
  template <class Part>
  void Nested(const char* name, Part* part) {
    const FieldDescriptor* field = FieldOf(message_, name);
    if (!reflection().HasField(message_, field)) {
      Refuse(name, -1, "missing", "a value");
      return;
    }
    Take(reflection().GetMessage(message_, field), field, -1, part);
  }
  template <class Part>
  void Optional(const char* name, Part* part) {
    const FieldDescriptor* field = FieldOf(message_, name);
    if (!reflection().HasField(message_, field)) return;
    Take(reflection().GetMessage(message_, field), field, -1, part);
  }
  template <class Part>
  void Repeated(const char* name, std::vector<Part>* parts) {
    const FieldDescriptor* field = FieldOf(message_, name);
    parts->resize(static_cast<size_t>(Size(field)));
    for (int index = 0; index < Size(field); ++index) {
      Take(reflection().GetRepeatedMessage(message_, field, index), field,
           index, &(*parts)[static_cast<size_t>(index)]);
    }
  }
  // Repeated, no two with one key.
  template <class Entry>
  void Entries(const char* name, std::vector<Entry>* entries) {
    Repeated(name, entries);
    if (!status_.ok()) return;
    std::map<std::string, size_t> places;
    for (size_t index = 0; index < entries->size(); ++index) {
      const std::string key = KeyOf((*entries)[index]);
      const auto [place, is_new] = places.emplace(key, index);
      if (is_new) continue;
      Refuse(name, static_cast<int>(index), absl::StrCat("'", key, "' again"),
             absl::StrCat("each once; the first is ", path_, name, "[",
                          place->second, "]"));
    }
  }

 private:
  const google::protobuf::Reflection& reflection() const {
    return *message_.GetReflection();
  }
  int Size(const FieldDescriptor* field) const {
    return reflection().FieldSize(message_, field);
  }
  int64_t GetInteger(const char* name) const {
    const FieldDescriptor* field = FieldOf(message_, name);
    return field->cpp_type() == FieldDescriptor::CPPTYPE_INT32
               ? reflection().GetInt32(message_, field)
               : reflection().GetInt64(message_, field);
  }
  double Checked(const char* name, int index, double value) {
    if (!(value >= 0) || !std::isfinite(value)) {
      Refuse(name, index, absl::StrCat(value), "a finite number, 0 or more");
    } else if (value > kMostNumber) {
      Refuse(name, index, absl::StrCat(value),
             absl::StrCat("at most ", kMostNumber));
    }
    return value;
  }
  int LineOf(const FieldDescriptor* field, int index) const {
    if (field->is_repeated() && index < 0) index = 0;
    const int line =
        tree_ == nullptr ? -1 : tree_->GetLocation(field, index).line;
    return line < 0 ? line_ : line;
  }
  void Refuse(const char* name, int index, absl::string_view value,
              absl::string_view allowed) {
    if (!status_.ok()) return;
    const std::string where = index < 0
                                  ? absl::StrCat(path_, name)
                                  : absl::StrCat(path_, name, "[", index, "]");
    status_ = AtLine(source_, LineOf(FieldOf(message_, name), index),
                     BadValue(where, value, allowed));
  }
  template <class Part>
  void Take(const Message& inner, const FieldDescriptor* field, int index,
            Part* part) {
    if (!status_.ok()) return;
    std::string place = field->name();
    if (index >= 0) absl::StrAppend(&place, "[", index, "]");
    Reader reader(
        source_, inner,
        tree_ == nullptr ? nullptr : tree_->GetTreeForNested(field, index),
        absl::StrCat(path_, place, "."), LineOf(field, index));
    profile_fields::Visit(reader, *part);
    if (const Wrong wrong = WhatIsWrong(*part); wrong.field != nullptr) {
      reader.Refuse(wrong.field, -1, wrong.value, wrong.allowed);
    }
    status_ = reader.status_;
  }

  absl::string_view source_;
  const Message& message_;
  const Tree* tree_;
  std::string path_;
  int line_;
  absl::Status status_;
};

// Puts a struct's fields into a message.
class Writer {
 public:
  explicit Writer(Message* message) : message_(*message) {}

  template <class Integer>
  void Count(const char* name, const Integer* value, int64_t = 0) {
    Reading(name, value);
  }
  void Reading(const char* name, const int64_t* value) {
    reflection().SetInt64(&message_, FieldOf(message_, name), *value);
  }
  void Reading(const char* name, const int32_t* value) {
    reflection().SetInt32(&message_, FieldOf(message_, name), *value);
  }
  void Reading(const char* name, const double* value) { Number(name, value); }
  void Counts(const char* name, const std::vector<int64_t>* values) {
    for (const int64_t value : *values) {
      reflection().AddInt64(&message_, FieldOf(message_, name), value);
    }
  }
  void Number(const char* name, const double* value, double unit = 1) {
    reflection().SetDouble(&message_, FieldOf(message_, name),
                           unit == 1 ? *value : Rounded(*value / unit));
  }
  void Time(const char* name, const double* value) {
    reflection().SetDouble(&message_, FieldOf(message_, name),
                           Rounded(*value * kMicrosPerSecond));
  }
  void Times(const char* name, const std::vector<double>* values) {
    for (const double value : *values) {
      reflection().AddDouble(&message_, FieldOf(message_, name),
                             Rounded(value * kMicrosPerSecond));
    }
  }
  void Flag(const char* name, const bool* value) {
    reflection().SetBool(&message_, FieldOf(message_, name), *value);
  }
  void Text(const char* name, const std::string* value) {
    reflection().SetString(&message_, FieldOf(message_, name), *value);
  }
  void Texts(const char* name, const std::vector<std::string>* values) {
    for (const std::string& value : *values) {
      reflection().AddString(&message_, FieldOf(message_, name), value);
    }
  }
  void Choice(const char* name, const std::string* value, const Names&) {
    Text(name, value);
  }
  template <class Choices>
  void Enum(const char* name, const Choices* value, int,
            absl::string_view (*name_of)(Choices)) {
    const std::string text(name_of(*value));
    Text(name, &text);
  }
  template <class Part>
  void Nested(const char* name, Part* part) {
    Writer writer(
        reflection().MutableMessage(&message_, FieldOf(message_, name)));
    profile_fields::Visit(writer, *part);
  }
  template <class Part>
  void Optional(const char* name, Part* part) {
    if (!(*part == Part())) Nested(name, part);
  }
  template <class Part>
  void Repeated(const char* name, std::vector<Part>* parts) {
    for (Part& part : *parts) {
      Writer writer(
          reflection().AddMessage(&message_, FieldOf(message_, name)));
      profile_fields::Visit(writer, part);
    }
  }
  template <class Entry>
  void Entries(const char* name, std::vector<Entry>* entries) {
    Repeated(name, entries);
  }

 private:
  const google::protobuf::Reflection& reflection() const {
    return *message_.GetReflection();
  }
  Message& message_;
};

proto::Profile ToMessage(const Profile& profile) {
  proto::Profile message;
  Writer writer(&message);
  Profile copy = profile;  // one Visit for both directions takes no const
  profile_fields::Visit(writer, copy);
  return message;
}

}  // namespace

absl::StatusOr<Profile> ReadProfile(absl::string_view text,
                                    absl::string_view source_name) {
  proto::Profile message;
  TextFormat::ParseInfoTree tree;
  PW_RETURN_IF_ERROR(ParseTextProto(text, source_name, &message, &tree));
  Profile profile;
  Reader reader(source_name, message, &tree, "", -1);
  profile_fields::Visit(reader, profile);
  PW_RETURN_IF_ERROR(reader.status());
  return profile;
}

absl::Status CheckProfile(const Profile& profile,
                          absl::string_view source_name) {
  const proto::Profile message = ToMessage(profile);
  Profile read;
  Reader reader(source_name, message, nullptr, "", -1);
  profile_fields::Visit(reader, read);
  return reader.status();
}

std::string WriteProfile(const Profile& profile) {
  const proto::Profile message = ToMessage(profile);
  TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  PW_CHECK(printer.PrintToString(message, &text));
  return absl::StrCat(
      "# Written by pipewright calibrate, not by hand.\n"
      "# proto-file: sim/proto/profile.proto\n"
      "# proto-message: pipewright.proto.Profile\n",
      text);
}

}  // namespace pipewright
