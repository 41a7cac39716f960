// An object of JSON, key after key: what an initializer list gives, without the
// copies that one makes. For rows of which a report has many.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

namespace pipewright {

class JsonRow {
 public:
  explicit JsonRow(size_t keys) : row_(nlohmann::ordered_json::object()) {
    fields().reserve(keys);
  }
  // `key` is new.
  template <typename Value>
  JsonRow& Add(const char* key, Value&& value) {
    fields().emplace_back(key, std::forward<Value>(value));
    return *this;
  }
  nlohmann::ordered_json Take() { return std::move(row_); }

 private:
  nlohmann::ordered_json::object_t& fields() {
    return row_.get_ref<nlohmann::ordered_json::object_t&>();
  }

  nlohmann::ordered_json row_;
};

}  // namespace pipewright
