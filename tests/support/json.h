// JSON that a test reads, in the words of nlohmann::json, whose templates cost
// every file that includes them some 3 s of compilation.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright::testing {

template <typename T>
concept JsonInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <typename T>
concept JsonScalar = std::is_same_v<T, bool> || std::is_same_v<T, int> ||
    std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t> ||
    std::is_same_v<T, double> || std::is_same_v<T, std::string>;

// A value of a document, which it shares. What is not there never reads as
// null: a missing key or index throws std::out_of_range, and a value of another
// type std::domain_error. Only arrays and objects have a size and elements,
// only objects have keys; nlohmann takes a number for one element and null for
// none.
class Json {
 public:
  class Iterator;
  class Items;
  // Entry of an object; in an array the key is the index.
  struct Item;

  // Null.
  Json() = default;
  Json(const Json&) = default;
  // Only to a variable: json["key"] = other would change no document.
  Json& operator=(const Json&) & = default;

  // Throws std::invalid_argument where the text is not JSON.
  static Json parse(absl::string_view text);
  // Discarded where the text is not JSON.
  static Json try_parse(absl::string_view text);

  Json at(absl::string_view key) const;
  Json at(const char* key) const { return at(absl::string_view(key)); }
  template <JsonInteger Index>
  Json at(Index index) const {
    return At(static_cast<int64_t>(index));
  }
  // As at().
  Json operator[](absl::string_view key) const { return at(key); }
  Json operator[](const char* key) const { return at(key); }
  template <JsonInteger Index>
  Json operator[](Index index) const {
    return at(index);
  }
  // The value at a JSON pointer, "/ranks/0/busy_s".
  Json at_pointer(absl::string_view pointer) const;
  Json front() const { return At(0); }
  Json back() const;

  bool contains(absl::string_view key) const;
  size_t count(absl::string_view key) const { return contains(key) ? 1 : 0; }
  size_t size() const;
  bool empty() const { return size() == 0; }

  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_structured() const { return is_object() || is_array(); }
  bool is_string() const;
  bool is_boolean() const;
  bool is_number() const;
  bool is_number_integer() const;
  bool is_number_float() const;
  bool is_discarded() const;

  // Value as one of the types that are declared below the class. An integer
  // type takes only a number that it can hold.
  template <typename T>
  T get() const = delete;
  template <JsonScalar T>
  operator T() const {  // NOLINT(google-explicit-constructor)
    return get<T>();
  }
  // `otherwise` where the key is missing.
  bool value(absl::string_view key, bool otherwise) const;
  int value(absl::string_view key, int otherwise) const;
  double value(absl::string_view key, double otherwise) const;
  std::string value(absl::string_view key, const char* otherwise) const;

  Iterator begin() const;
  Iterator end() const;
  Items items() const;

  std::string dump(int indent = -1) const;
  // A copy of this object without the key, whether it has it or not.
  Json without(absl::string_view key) const;

  // Two objects are equal whatever the order of their keys. Another type is
  // unequal. Integers compare exactly, with a double as doubles.
  friend bool operator==(const Json& a, const Json& b) { return a.Equals(b); }
  friend bool operator==(const Json& a, absl::string_view b) {
    return a.Equals(b);
  }
  friend bool operator==(const Json& a, std::nullptr_t) { return a.is_null(); }
  template <typename T>
  requires std::is_arithmetic_v<T>
  friend bool operator==(const Json& a, T b) { return a.Equals(Wide(b)); }
  template <typename T>
  friend bool operator==(const Json& a, const std::vector<T>& b) {
    if (!a.is_array() || a.size() != b.size()) return false;
    for (size_t index = 0; index < b.size(); ++index) {
      if (!(a[index] == b[index])) return false;
    }
    return true;
  }

  // Only numbers have an order.
  friend std::partial_ordering operator<=>(const Json& a, const Json& b) {
    return a.Order(b);
  }
  template <typename T>
  requires(std::is_arithmetic_v<T> &&
           !std::is_same_v<T, bool>) friend std::partial_ordering
  operator<=>(const Json& a, T b) {
    return a.Order(Wide(b));
  }

  friend std::ostream& operator<<(std::ostream& out, const Json& json);

 private:
  // The one of the types that Equals() and Order() take.
  template <typename T>
  static auto Wide(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(value);
    } else if constexpr (std::is_signed_v<T>) {
      return static_cast<int64_t>(value);
    } else {
      return static_cast<uint64_t>(value);
    }
  }

  // A part of this document.
  Json Part(const void* node) const;
  Json At(int64_t index) const;
  Json ValueAt(size_t index) const;
  std::string KeyAt(size_t index) const;
  bool Equals(const Json& other) const;
  bool Equals(absl::string_view other) const;
  bool Equals(bool other) const;
  bool Equals(int64_t other) const;
  bool Equals(uint64_t other) const;
  bool Equals(double other) const;
  std::partial_ordering Order(const Json& other) const;
  std::partial_ordering Order(int64_t other) const;
  std::partial_ordering Order(uint64_t other) const;
  std::partial_ordering Order(double other) const;

  explicit Json(std::shared_ptr<const void> node) : node_(std::move(node)) {}

  // A nlohmann::ordered_json that keeps its document alive; none stands for
  // null.
  std::shared_ptr<const void> node_;
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
template <>
std::vector<int> Json::get<std::vector<int>>() const;
template <>
std::vector<int64_t> Json::get<std::vector<int64_t>>() const;
template <>
std::vector<double> Json::get<std::vector<double>>() const;
template <>
std::vector<std::string> Json::get<std::vector<std::string>>() const;
template <>
std::vector<std::vector<std::string>>
Json::get<std::vector<std::vector<std::string>>>() const;

struct Json::Item {
  const std::string& key() const { return first; }
  const Json& value() const { return second; }

  std::string first;
  Json second;
};

// The elements of an array, the values of an object; it gives them by value.
class Json::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Json;
  using difference_type = ptrdiff_t;
  using pointer = void;
  using reference = Json;

  Iterator(const Json& of, size_t index) : of_(of), index_(index) {}
  Json operator*() const { return of_.ValueAt(index_); }
  Iterator& operator++() {
    ++index_;
    return *this;
  }
  bool operator==(const Iterator& other) const {
    return index_ == other.index_;
  }

 private:
  Json of_;
  size_t index_;
};

// What Json::items() gives.
class Json::Items {
 public:
  class Iterator {
   public:
    Iterator(const Json& of, size_t index) : of_(of), index_(index) {}
    Item operator*() const { return {of_.KeyAt(index_), of_.ValueAt(index_)}; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const {
      return index_ == other.index_;
    }

   private:
    Json of_;
    size_t index_;
  };

  explicit Items(const Json& of) : of_(of) {}
  Iterator begin() const { return Iterator(of_, 0); }
  Iterator end() const { return Iterator(of_, of_.size()); }

 private:
  Json of_;
};

}  // namespace pipewright::testing
