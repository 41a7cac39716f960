// What a page draws with its own script: one JSON object, and beside it one
// block of columns of numbers, packed with gzip and written in base64. A column
// stands in the JSON as {"at": byte in the block, "n": count, "t": type}; of
// all its values the lowest bytes come first, then the next ones, as that packs
// better. sim/report/web/data.js reads it. The same input gives the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/json.h"

namespace pipewright {

class PageData {
 public:
  // Words are text, not HTML.
  Json& json() { return json_; }

  Json Add(const std::vector<double>& values);
  Json Add(const std::vector<uint32_t>& values);
  Json Add(const std::vector<int32_t>& values);
  Json Add(const std::vector<uint16_t>& values);
  Json Add(const std::vector<uint8_t>& values);

  // Two elements for a page; no text in them can end them early.
  std::string Elements() const;

 private:
  template <typename Value>
  Json AddColumn(const std::vector<Value>& values, const char* type);

  Json json_ = Json::object();
  std::string block_;
};

}  // namespace pipewright
