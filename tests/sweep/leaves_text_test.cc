// Leaves of a result as text, against what the library writes.
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/sweep/leaves.h"

namespace pipewright::leaves_text_test {
namespace {

using nlohmann::ordered_json;

TEST_CASE("sweep: leaves are written as the JSON library writes them",
          "[sweep]") {
  const std::vector<ordered_json> leaves = {
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
      ordered_json::binary({1, 2}),
  };
  for (const ordered_json& leaf : leaves) {
    const std::string text =
        leaf.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    INFO(text);
    CHECK(SplitTree(ordered_json::array({leaf, leaf})).leaves ==
          "[" + text + "," + text + "]");
    if (!leaf.is_string()) continue;
    // And as a key.
    ordered_json tree = ordered_json::object();
    tree[leaf.get<std::string>()] = 1;
    CHECK(SplitTree(tree).shape == "{" + text + ":0}");
  }
}

}  // namespace
}  // namespace pipewright::leaves_text_test
