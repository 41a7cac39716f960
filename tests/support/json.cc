#include "tests/support/json.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pipewright::testing {
namespace {

using Node = nlohmann::ordered_json;

const Node& NodeOf(const std::shared_ptr<const void>& node) {
  static const Node* null = new Node;
  return node == nullptr ? *null : *static_cast<const Node*>(node.get());
}

// The start of a long value is enough to know it.
std::string StartOf(const Node& node) {
  constexpr size_t kShown = 200;
  const std::string text = node.is_discarded() ? "<discarded>" : node.dump();
  return text.size() <= kShown ? text
                               : absl::StrCat(text.substr(0, kShown), "...");
}

[[noreturn]] void Missing(const Node& node, absl::string_view what) {
  throw std::out_of_range(
      absl::StrCat("JSON has no ", what, ": ", StartOf(node)));
}

void CheckType(bool fits, const Node& node, absl::string_view wanted) {
  if (fits) return;
  throw std::domain_error(
      absl::StrCat("JSON is no ", wanted, ": ", StartOf(node)));
}

// Null where the key is missing.
const Node* Find(const Node& node, absl::string_view key) {
  CheckType(node.is_object(), node, absl::StrCat("object with ", key));
  const auto found = node.find(std::string(key));
  return found == node.end() ? nullptr : &*found;
}

template <typename T>
void Read(const Node& node, T* value) {
  // Every integer up to it is a double of its own.
  constexpr double kExact = 1LL << 53;
  bool fits = false;
  if (node.is_number_unsigned()) {
    fits = std::in_range<T>(node.get<uint64_t>());
  } else if (node.is_number_integer()) {
    fits = std::in_range<T>(node.get<int64_t>());
  } else if (node.is_number_float()) {
    const double number = node.get<double>();
    fits = std::abs(number) <= kExact && number == std::trunc(number) &&
           std::in_range<T>(static_cast<int64_t>(number));
  }
  CheckType(fits, node, absl::StrCat("integer of ", sizeof(T), " bytes"));
  *value = node.get<T>();
}

void Read(const Node& node, bool* value) {
  CheckType(node.is_boolean(), node, "boolean");
  *value = node.get<bool>();
}

void Read(const Node& node, double* value) {
  CheckType(node.is_number(), node, "number");
  *value = node.get<double>();
}

void Read(const Node& node, std::string* value) {
  CheckType(node.is_string(), node, "string");
  *value = node.get_ref<const std::string&>();
}

template <typename T>
void Read(const Node& node, std::vector<T>* values) {
  CheckType(node.is_array(), node, "array");
  values->resize(node.size());
  for (size_t index = 0; index < node.size(); ++index) {
    Read(node[index], &(*values)[index]);
  }
}

template <typename T>
T Get(const Node& node) {
  T value;
  Read(node, &value);
  return value;
}

template <typename T>
T GetOr(const Node& node, absl::string_view key, T otherwise) {
  const Node* found = Find(node, key);
  return found == nullptr ? otherwise : Get<T>(*found);
}

// To nlohmann -1 and 2^64 - 1 are equal.
template <typename T>
bool EqualsInteger(const Node& node, T other) {
  if (node.is_number_unsigned()) {
    return std::cmp_equal(node.get<uint64_t>(), other);
  }
  if (node.is_number_integer()) {
    return std::cmp_equal(node.get<int64_t>(), other);
  }
  return node.is_number_float() &&
         node.get<double>() == static_cast<double>(other);
}

template <typename T>
std::partial_ordering OrderInteger(const Node& node, T other) {
  CheckType(node.is_number(), node, "number");
  if (node.is_number_float()) {
    return node.get<double>() <=> static_cast<double>(other);
  }
  if (EqualsInteger(node, other)) return std::partial_ordering::equivalent;
  const bool less = node.is_number_unsigned()
                        ? std::cmp_less(node.get<uint64_t>(), other)
                        : std::cmp_less(node.get<int64_t>(), other);
  return less ? std::partial_ordering::less : std::partial_ordering::greater;
}

bool Same(const Node& a, const Node& b) {
  if (a.is_object()) {
    if (!b.is_object() || a.size() != b.size()) return false;
    for (const auto& [key, value] : a.items()) {
      const Node* found = Find(b, key);
      if (found == nullptr || !Same(value, *found)) return false;
    }
    return true;
  }
  if (a.is_array()) {
    return b.is_array() &&
           std::equal(a.begin(), a.end(), b.begin(), b.end(), Same);
  }
  if (b.is_number_unsigned()) return EqualsInteger(a, b.get<uint64_t>());
  if (b.is_number_integer()) return EqualsInteger(a, b.get<int64_t>());
  return a == b;
}

}  // namespace

Json Json::parse(absl::string_view text) {
  try {
    return Json(
        std::make_shared<const Node>(Node::parse(text.begin(), text.end())));
  } catch (const nlohmann::json::parse_error& error) {
    throw std::invalid_argument(
        absl::StrCat(error.what(), ": ", text.substr(0, 200)));
  }
}

Json Json::try_parse(absl::string_view text) {
  return Json(std::make_shared<const Node>(Node::parse(
      text.begin(), text.end(), nullptr, /*allow_exceptions=*/false)));
}

Json Json::Part(const void* node) const {
  return Json(std::shared_ptr<const void>(node_, node));
}

Json Json::at(absl::string_view key) const {
  const Node& node = NodeOf(node_);
  const Node* found = Find(node, key);
  if (found == nullptr) Missing(node, key);
  return Part(found);
}

Json Json::At(int64_t index) const {
  const Node& node = NodeOf(node_);
  CheckType(node.is_array(), node, "array");
  if (std::cmp_less(index, 0) || std::cmp_greater_equal(index, node.size())) {
    Missing(node, absl::StrCat("index ", index));
  }
  return Part(&node[static_cast<size_t>(index)]);
}

Json Json::at_pointer(absl::string_view pointer) const {
  const Node& node = NodeOf(node_);
  const Node::json_pointer parsed{std::string(pointer)};
  if (!node.contains(parsed)) Missing(node, pointer);
  return Part(&node.at(parsed));
}

Json Json::back() const { return At(static_cast<int64_t>(size()) - 1); }

bool Json::contains(absl::string_view key) const {
  return Find(NodeOf(node_), key) != nullptr;
}

size_t Json::size() const {
  const Node& node = NodeOf(node_);
  CheckType(node.is_structured(), node, "array or object");
  return node.size();
}

bool Json::is_null() const { return NodeOf(node_).is_null(); }
bool Json::is_object() const { return NodeOf(node_).is_object(); }
bool Json::is_array() const { return NodeOf(node_).is_array(); }
bool Json::is_string() const { return NodeOf(node_).is_string(); }
bool Json::is_boolean() const { return NodeOf(node_).is_boolean(); }
bool Json::is_number() const { return NodeOf(node_).is_number(); }
bool Json::is_number_integer() const {
  return NodeOf(node_).is_number_integer();
}
bool Json::is_number_float() const { return NodeOf(node_).is_number_float(); }
bool Json::is_discarded() const { return NodeOf(node_).is_discarded(); }

template <>
bool Json::get<bool>() const {
  return Get<bool>(NodeOf(node_));
}

template <>
int Json::get<int>() const {
  return Get<int>(NodeOf(node_));
}

template <>
int64_t Json::get<int64_t>() const {
  return Get<int64_t>(NodeOf(node_));
}

template <>
uint64_t Json::get<uint64_t>() const {
  return Get<uint64_t>(NodeOf(node_));
}

template <>
double Json::get<double>() const {
  return Get<double>(NodeOf(node_));
}

template <>
std::string Json::get<std::string>() const {
  return Get<std::string>(NodeOf(node_));
}

template <>
std::vector<int> Json::get<std::vector<int>>() const {
  return Get<std::vector<int>>(NodeOf(node_));
}

template <>
std::vector<int64_t> Json::get<std::vector<int64_t>>() const {
  return Get<std::vector<int64_t>>(NodeOf(node_));
}

template <>
std::vector<double> Json::get<std::vector<double>>() const {
  return Get<std::vector<double>>(NodeOf(node_));
}

template <>
std::vector<std::string> Json::get<std::vector<std::string>>() const {
  return Get<std::vector<std::string>>(NodeOf(node_));
}

template <>
std::vector<std::vector<std::string>>
Json::get<std::vector<std::vector<std::string>>>() const {
  return Get<std::vector<std::vector<std::string>>>(NodeOf(node_));
}

bool Json::value(absl::string_view key, bool otherwise) const {
  return GetOr<bool>(NodeOf(node_), key, otherwise);
}

int Json::value(absl::string_view key, int otherwise) const {
  return GetOr<int>(NodeOf(node_), key, otherwise);
}

double Json::value(absl::string_view key, double otherwise) const {
  return GetOr<double>(NodeOf(node_), key, otherwise);
}

std::string Json::value(absl::string_view key, const char* otherwise) const {
  return GetOr<std::string>(NodeOf(node_), key, otherwise);
}

Json::Iterator Json::begin() const { return Iterator(*this, 0); }
Json::Iterator Json::end() const { return Iterator(*this, size()); }
Json::Items Json::items() const { return Items(*this); }

std::string Json::dump(int indent) const { return NodeOf(node_).dump(indent); }

Json Json::without(absl::string_view key) const {
  auto copy = std::make_shared<Node>(NodeOf(node_));
  CheckType(copy->is_object(), *copy, absl::StrCat("object with ", key));
  copy->erase(std::string(key));
  return Json(std::shared_ptr<const void>(std::move(copy)));
}

std::ostream& operator<<(std::ostream& out, const Json& json) {
  return out << json.dump();
}

Json Json::ValueAt(size_t index) const {
  const Node& node = NodeOf(node_);
  return Part(&*std::next(node.begin(), static_cast<ptrdiff_t>(index)));
}

std::string Json::KeyAt(size_t index) const {
  const Node& node = NodeOf(node_);
  if (node.is_array()) return absl::StrCat(index);
  return std::next(node.begin(), static_cast<ptrdiff_t>(index)).key();
}

bool Json::Equals(const Json& other) const {
  return Same(NodeOf(node_), NodeOf(other.node_));
}

bool Json::Equals(absl::string_view other) const {
  const Node& node = NodeOf(node_);
  return node.is_string() && node.get_ref<const std::string&>() == other;
}

bool Json::Equals(bool other) const {
  const Node& node = NodeOf(node_);
  return node.is_boolean() && node.get<bool>() == other;
}

bool Json::Equals(int64_t other) const {
  return EqualsInteger(NodeOf(node_), other);
}

bool Json::Equals(uint64_t other) const {
  return EqualsInteger(NodeOf(node_), other);
}

bool Json::Equals(double other) const {
  const Node& node = NodeOf(node_);
  return node.is_number() && node.get<double>() == other;
}

std::partial_ordering Json::Order(const Json& other) const {
  const Node& b = NodeOf(other.node_);
  if (b.is_number_unsigned()) return Order(b.get<uint64_t>());
  if (b.is_number_integer()) return Order(b.get<int64_t>());
  return Order(Get<double>(b));
}

std::partial_ordering Json::Order(int64_t other) const {
  return OrderInteger(NodeOf(node_), other);
}

std::partial_ordering Json::Order(uint64_t other) const {
  return OrderInteger(NodeOf(node_), other);
}

std::partial_ordering Json::Order(double other) const {
  return Get<double>(NodeOf(node_)) <=> other;
}

}  // namespace pipewright::testing
