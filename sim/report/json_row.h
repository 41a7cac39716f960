// An object of JSON, key after key: what an initializer list gives, without the
// copies that one makes. For rows of which a report has many.
#pragma once

#include <cstddef>
#include <utility>

#include "sim/base/json.h"

namespace pipewright {

class JsonRow {
 public:
  explicit JsonRow(size_t keys) : row_(Json::object()) { row_.reserve(keys); }
  // `key` is new.
  JsonRow& Add(const char* key, Json value) {
    row_.append(key, std::move(value));
    return *this;
  }
  Json Take() { return std::move(row_); }

 private:
  Json row_;
};

}  // namespace pipewright
