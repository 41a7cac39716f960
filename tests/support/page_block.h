// What a page's script reads (sim/report/page_data.h), in plain C++.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/json.h"

namespace pipewright::testing {

class PageBlock {
 public:
  // A page, or the elements of PageData. Fails the case where it has no data.
  explicit PageBlock(const std::string& html);

  const Json& json() const { return json_; }

  // The column that stands at `place` of the JSON.
  template <typename Value>
  std::vector<Value> Column(const Json& place) const {
    const size_t count = place["n"];
    const size_t at = place["at"];
    std::vector<Value> out(count);
    for (size_t index = 0; index < count; ++index) {
      char bytes[sizeof(Value)];
      for (size_t byte = 0; byte < sizeof(Value); ++byte) {
        bytes[byte] = block_.at(at + byte * count + index);
      }
      std::memcpy(&out[index], bytes, sizeof(Value));
    }
    return out;
  }

 private:
  Json json_;
  std::string block_;
};

}  // namespace pipewright::testing
