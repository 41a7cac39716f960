// The data of a page: what a browser unpacks is what was put in, and no text
// can leave its element.
#include "sim/report/page_data.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "tests/support/xml_check.h"

namespace pipewright {
namespace {

std::string Between(const std::string& text, const std::string& from,
                    const std::string& to) {
  const size_t start = text.find(from);
  REQUIRE(start != std::string::npos);
  const size_t begin = start + from.size();
  return text.substr(begin, text.find(to, begin) - begin);
}

// As data.js does it, in plain C++.
std::string Block(const std::string& elements) {
  std::string packed;
  REQUIRE(absl::Base64Unescape(
      Between(elements, "id=\"pw-block\">", "</script>"), &packed));
  z_stream zlib = {};
  REQUIRE(inflateInit2(&zlib, 15 + 16) == Z_OK);
  std::string out(1 << 20, '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(packed.data());
  zlib.avail_in = static_cast<uInt>(packed.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  CHECK(inflate(&zlib, Z_FINISH) == Z_STREAM_END);
  out.resize(zlib.total_out);
  inflateEnd(&zlib);
  return out;
}

template <typename Value>
std::vector<Value> Column(const std::string& block,
                          const nlohmann::json& place) {
  const size_t count = place["n"];
  const size_t at = place["at"];
  std::vector<Value> out(count);
  for (size_t index = 0; index < count; ++index) {
    char bytes[sizeof(Value)];
    for (size_t byte = 0; byte < sizeof(Value); ++byte) {
      bytes[byte] = block.at(at + byte * count + index);
    }
    std::memcpy(&out[index], bytes, sizeof(Value));
  }
  return out;
}

TEST_CASE("page data: columns come back as they were", "[html]") {
  const std::vector<double> times = {0, 1.5e-300, -3, 0.1, 1e300};
  const std::vector<uint32_t> words = {0, 4'294'967'295u, 7};
  const std::vector<int32_t> signs = {-1, 5};
  const std::vector<uint16_t> shorts = {65535, 1};
  const std::vector<uint8_t> bytes = {255, 0, 3};
  PageData data;
  data.json()["times"] = data.Add(times);
  data.json()["words"] = data.Add(words);
  data.json()["signs"] = data.Add(signs);
  data.json()["shorts"] = data.Add(shorts);
  data.json()["bytes"] = data.Add(bytes);
  data.json()["none"] = data.Add(std::vector<double>{});
  const std::string elements = data.Elements();
  CHECK(elements == data.Elements());
  const auto json =
      nlohmann::json::parse(Between(elements, "id=\"pw-data\">", "</script>"));
  const std::string block = Block(elements);
  CHECK(Column<double>(block, json["times"]) == times);
  CHECK(Column<uint32_t>(block, json["words"]) == words);
  CHECK(Column<int32_t>(block, json["signs"]) == signs);
  CHECK(Column<uint16_t>(block, json["shorts"]) == shorts);
  CHECK(Column<uint8_t>(block, json["bytes"]) == bytes);
  CHECK(json["none"]["n"] == 0);
  CHECK(json["times"]["t"] == "f64");
}

TEST_CASE("page data: no text ends its element early", "[html]") {
  PageData data;
  const std::string name = "</script><b>&\"\\ \xff";
  data.json()["name"] = name;
  const std::string elements = data.Elements();
  CHECK(testing::Count(elements, "</script") == 2);
  CHECK(testing::XmlProblem("<a>" + elements + "</a>") == "");
  const auto json =
      nlohmann::json::parse(Between(elements, "id=\"pw-data\">", "</script>"));
  // A broken byte becomes the replacement character.
  CHECK(json["name"] == "</script><b>&\"\\ \xef\xbf\xbd");
}

}  // namespace
}  // namespace pipewright
