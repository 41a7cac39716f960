#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sim/base/json.h"
#include "sim/profile/fields.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

using Names = std::vector<std::string>;

// "median_s" of a file's "median_us": values are those of the structs.
std::string JsonKey(absl::string_view name, absl::string_view unit,
                    absl::string_view in_memory) {
  return absl::ConsumeSuffix(&name, unit) ? absl::StrCat(name, in_memory)
                                          : std::string(name);
}

class JsonWriter {
 public:
  explicit JsonWriter(Json* object) : object_(*object) {}

  template <class Value>
  void Count(const char* name, const Value* value, int64_t = 0) {
    object_.append(name, *value);
  }
  template <class Value>
  void Reading(const char* name, const Value* value) {
    object_.append(name, *value < 0 ? Json() : Json(*value));
  }
  void Counts(const char* name, const std::vector<int64_t>* values) {
    object_.append(name, *values);
  }
  void Number(const char* name, const double* value, double = 1) {
    object_.append(JsonKey(name, "_GBps", "_bytes_per_s"), *value);
  }
  void Time(const char* name, const double* value) {
    object_.append(JsonKey(name, "_us", "_s"), *value);
  }
  void Times(const char* name, const std::vector<double>* values) {
    object_.append(JsonKey(name, "_us", "_s"), *values);
  }
  void Flag(const char* name, const bool* value) {
    object_.append(name, *value);
  }
  void Text(const char* name, const std::string* value) {
    object_.append(name, *value);
  }
  void Texts(const char* name, const Names* values) {
    object_.append(name, *values);
  }
  void Choice(const char* name, const std::string* value, const Names&) {
    Text(name, value);
  }
  template <class Choices>
  void Enum(const char* name, const Choices* value, int,
            absl::string_view (*name_of)(Choices)) {
    object_.append(name, name_of(*value));
  }
  template <class Part>
  void Nested(const char* name, Part* part) {
    Json nested = Json::object();
    JsonWriter writer(&nested);
    profile_fields::Visit(writer, *part);
    object_.append(name, std::move(nested));
  }
  template <class Part>
  void Optional(const char* name, Part* part) {
    if (*part == Part()) return object_.append(name, Json());
    Nested(name, part);
  }
  template <class Part>
  void Repeated(const char* name, std::vector<Part>* parts) {
    Json list = Json::array();
    for (Part& part : *parts) {
      Json entry = Json::object();
      JsonWriter writer(&entry);
      profile_fields::Visit(writer, part);
      list.push_back(std::move(entry));
    }
    object_.append(name, std::move(list));
  }
  template <class Entry>
  void Entries(const char* name, std::vector<Entry>* entries) {
    Repeated(name, entries);
  }

 private:
  Json& object_;
};

}  // namespace

Json ProfileToJson(const Profile& profile) {
  Json object = Json::object();
  JsonWriter writer(&object);
  Profile copy = profile;  // one Visit for both directions takes no const
  profile_fields::Visit(writer, copy);
  return object;
}

}  // namespace pipewright
