// A value of JSON: null, a truth value, a number, a text, a list or an object.
// It is what reports are made of and read back as, in the words of
// nlohmann::ordered_json, whose templates cost every file that includes them
// some 3 s of compilation; sim/base/json.cc alone uses it, to read text and to
// print doubles. An object keeps the order in which its keys came. A mistake in
// the type of a value is one of ours: whoever reads a file asks first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

class Json {
 public:
  enum class Type : uint8_t {
    kNull,
    kBoolean,
    kInteger,  // below 0 when read; else as it was built
    kUnsigned,
    kDouble,
    kString,
    kArray,
    kObject
  };
  // A key of an object with its value.
  struct Member;
  struct Field;

  Json() noexcept = default;
  Json(std::nullptr_t) noexcept {}  // NOLINT(google-explicit-constructor)
  // A pointer is no truth value.
  template <typename T>
  requires std::is_arithmetic_v<T> Json(T value)
  noexcept {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_same_v<T, bool>) {
      type_ = Type::kBoolean;
      value_.boolean = value;
    } else if constexpr (std::is_floating_point_v<T>) {
      type_ = Type::kDouble;
      value_.number = value;
    } else if constexpr (std::is_signed_v<T>) {
      type_ = Type::kInteger;
      value_.integer = value;
    } else {
      type_ = Type::kUnsigned;
      value_.natural = value;
    }
  }
  Json(const char* text);  // NOLINT(google-explicit-constructor)
  // Nothing that becomes a text only when it is in braces.
  template <typename T>
  requires std::is_same_v<T, std::string> ||
      std::is_same_v<T, absl::string_view>
      Json(T text) {  // NOLINT(google-explicit-constructor)
    SetText(std::string(std::move(text)));
  }
  template <typename T>
  Json(const std::vector<T>& list)  // NOLINT(google-explicit-constructor)
      : Json(array()) {
    reserve(list.size());
    // A bool has no address in its vector.
    for (const T& each : list) push_back(each);
  }
  template <typename T>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Json(const std::map<std::string, T>& values) : Json(object()) {
    reserve(values.size());
    for (const auto& [key, value] : values) append(key, value);
  }
  // {{"key", value}, ...}: an object of keys that differ. It takes what stands
  // in the braces. A list in braces is array({value, ...}).
  Json(std::initializer_list<Field> fields);  // NOLINT
  Json(const Json& other);
  Json(Json&& other) noexcept { Take(other); }
  Json& operator=(Json other) noexcept;
  ~Json() {
    if (type_ >= Type::kString) Destroy();
  }

  static Json object();
  static Json array();
  // It takes what stands in the braces.
  static Json array(std::initializer_list<Json> list);

  Type type() const { return type_; }
  bool is_null() const { return type_ == Type::kNull; }
  bool is_boolean() const { return type_ == Type::kBoolean; }
  bool is_number() const {
    return is_number_integer() || type_ == Type::kDouble;
  }
  bool is_number_integer() const {
    return type_ == Type::kInteger || type_ == Type::kUnsigned;
  }
  bool is_string() const { return type_ == Type::kString; }
  bool is_array() const { return type_ == Type::kArray; }
  bool is_object() const { return type_ == Type::kObject; }
  bool is_structured() const { return is_array() || is_object(); }

  // Value as one of the types below the class. Numbers become each other as in
  // C++.
  template <typename T>
  T get() const = delete;
  const std::string& text() const;

  // Number of elements of a list or keys of an object; null has none.
  size_t size() const;
  bool empty() const { return size() == 0; }
  void reserve(size_t size);

  // Element of a list. Only for integers: 0 is a pointer as well.
  template <typename T>
  requires std::is_integral_v<T> Json& operator[](T index) {
    return At(static_cast<size_t>(index));
  }
  template <typename T>
  requires std::is_integral_v<T>
  const Json& operator[](T index) const {
    return const_cast<Json*>(this)->At(static_cast<size_t>(index));
  }
  Json& back() { return At(size() - 1); }
  // Null becomes a list.
  void push_back(Json value);
  Json* begin();
  Json* end();
  const Json* begin() const;
  const Json* end() const;

  // Value of a key. Null becomes an object, and a missing key is added, as
  // null.
  Json& operator[](absl::string_view key);
  Json& operator[](const char* key) { return (*this)[absl::string_view(key)]; }
  // The key is there.
  const Json& operator[](absl::string_view key) const;
  const Json& operator[](const char* key) const {
    return (*this)[absl::string_view(key)];
  }
  // Null where this is no object or the key is missing.
  const Json* find(absl::string_view key) const;
  bool contains(absl::string_view key) const { return find(key) != nullptr; }
  const std::vector<Member>& items() const;
  // The key is not there yet, and nobody looks: an object whose keys are known
  // needs no search for each.
  void append(absl::string_view key, Json value);
  // As other[key] for each key.
  void update(Json other);

  // Without spaces, or with a line for each value and so many spaces a level.
  // Bytes that are no UTF-8 become U+FFFD; numbers that are not finite, null.
  std::string dump(int indent = -1) const;
  void append_to(std::string* out, int indent = -1) const;

  // Numbers are equal by value, objects by the order of their keys too.
  friend bool operator==(const Json& a, const Json& b);
  friend std::ostream& operator<<(std::ostream& out, const Json& json);

 private:
  union Value {
    bool boolean;
    int64_t integer;
    uint64_t natural;
    double number;
    std::string* text;
    std::vector<Json>* list;
    std::vector<Member>* members;
  };

  // Also of a value in braces, which nobody else has.
  void Take(const Json& other) noexcept {
    type_ = other.type_;
    value_ = other.value_;
    other.type_ = Type::kNull;
  }
  void Destroy();
  void SetText(std::string text);
  Json& At(size_t index);
  std::vector<Json>& List();
  std::vector<Member>& Members();

  mutable Type type_ = Type::kNull;
  Value value_ = {.natural = 0};
};

struct Json::Member {
  std::string key;
  Json value;
};

struct Json::Field {
  absl::string_view key;
  Json value;
};

template <>
bool Json::get<bool>() const;
template <>
int Json::get<int>() const;
template <>
int64_t Json::get<int64_t>() const;
template <>
uint64_t Json::get<uint64_t>() const;
template <>
double Json::get<double>() const;
template <>
std::string Json::get<std::string>() const;

// As dump() prints a text.
std::string QuotedJson(absl::string_view text);
void AppendQuotedJson(absl::string_view text, std::string* out);

// The last of several equal keys counts. Error: kInvalidArgument, "not
// JSON: line 1, column 2: ...".
absl::StatusOr<Json> ParseJson(absl::string_view text);

}  // namespace pipewright
