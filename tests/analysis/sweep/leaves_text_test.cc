// Leaves and keys of a result as text: what dump() prints.
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "sim/analysis/sweep/leaves.h"
#include "sim/base/json.h"

namespace pipewright::leaves_text_test {
namespace {

TEST_CASE("sweep: leaves are written as JSON", "[sweep]") {
  const std::vector<Json> leaves = {
      nullptr,
      true,
      false,
      0,
      -7,
      std::numeric_limits<int64_t>::min(),
      std::numeric_limits<uint64_t>::max(),
      0.0,
      -0.0,
      1.0,
      0.1,
      1e-7,
      1e15,
      1e16,
      1e300,
      5e-324,
      1.0 / 3,
      std::numeric_limits<double>::infinity(),
      std::numeric_limits<double>::quiet_NaN(),
      "",
      "plain words, 3.5 GB",
      "a \"quoted\" \\ word",
      "two\nlines\tand\x01",
      "\x7f",
      "Grüße",
      std::string("\xff is no UTF-8"),
  };
  for (const Json& leaf : leaves) {
    const std::string text = leaf.dump();
    INFO(text);
    CHECK(SplitTree(Json::array({leaf, leaf})).leaves ==
          "[" + text + "," + text + "]");
    if (!leaf.is_string()) continue;
    // And as a key.
    Json tree = Json::object();
    tree[leaf.get<std::string>()] = 1;
    CHECK(SplitTree(tree).shape == "{" + text + ":0}");
  }
}

}  // namespace
}  // namespace pipewright::leaves_text_test
