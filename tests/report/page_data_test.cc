// The data of a page: what a browser unpacks is what was put in, and no text
// can leave its element.
#include "sim/report/page_data.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/json.h"
#include "tests/support/page_block.h"
#include "tests/support/xml_check.h"

namespace pipewright::page_data_test {
namespace {

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
  const testing::PageBlock page(elements);
  const testing::Json& json = page.json();
  CHECK(page.Column<double>(json["times"]) == times);
  CHECK(page.Column<uint32_t>(json["words"]) == words);
  CHECK(page.Column<int32_t>(json["signs"]) == signs);
  CHECK(page.Column<uint16_t>(json["shorts"]) == shorts);
  CHECK(page.Column<uint8_t>(json["bytes"]) == bytes);
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
  const testing::Json json = testing::PageBlock(elements).json();
  // A broken byte becomes the replacement character.
  CHECK(json["name"] == "</script><b>&\"\\ \xef\xbf\xbd");
}

}  // namespace
}  // namespace pipewright::page_data_test
