#include "tests/support/json.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace pipewright::testing::json_test {
namespace {

constexpr int64_t kBeyondDouble = (int64_t{1} << 53) + 1;

TEST_CASE("test support: json has no value for what is missing", "[support]") {
  const Json json = Json::parse(R"({"a": [1, {"b": null}], "n": 3})");
  CHECK_THROWS_AS(json["x"], std::out_of_range);
  CHECK_THROWS_AS(json.at("x"), std::out_of_range);
  CHECK_THROWS_AS(json.at(std::string("x")), std::out_of_range);
  CHECK_THROWS_AS(json["a"][1]["x"], std::out_of_range);
  CHECK_THROWS_AS(json["a"][2], std::out_of_range);
  CHECK_THROWS_AS(json["a"][-1], std::out_of_range);
  CHECK_THROWS_AS(json["a"][size_t{2}], std::out_of_range);
  CHECK_THROWS_AS(Json::parse("[]").front(), std::out_of_range);
  CHECK_THROWS_AS(Json::parse("[]").back(), std::out_of_range);
  CHECK_THROWS_AS(json.at_pointer("/a/1/x"), std::out_of_range);
  CHECK_THROWS_WITH(json["x"], Catch::Contains("no x: {\"a\":[1,"));
  CHECK(json["a"][1]["b"].is_null());
  CHECK(json["a"][1]["b"] == nullptr);
  CHECK(json.at_pointer("/a/0") == 1);

  CHECK(json.contains("n"));
  CHECK(json.count("n") == 1);
  CHECK_FALSE(json.contains("x"));
  CHECK(json.value("n", 4) == 3);
  CHECK(json.value("x", 4) == 4);
  CHECK(json.value("x", 0.5) == 0.5);
  CHECK(json.value("x", true));
  CHECK(json.value("x", "text") == "text");
}

TEST_CASE("test support: json throws where the type is another", "[support]") {
  const Json json = Json::parse(
      R"({"null": null, "bool": true, "int": 3, "half": 0.5, "text": "1",
          "array": [1], "object": {}})");
  CHECK_THROWS_AS(json["int"]["x"], std::domain_error);
  CHECK_THROWS_AS(json["array"]["x"], std::domain_error);
  CHECK_THROWS_AS(json["null"]["x"], std::domain_error);
  CHECK_THROWS_AS(json["object"][0], std::domain_error);
  CHECK_THROWS_AS(json["null"].contains("x"), std::domain_error);
  CHECK_THROWS_AS(json["array"].value("x", 1), std::domain_error);
  CHECK_THROWS_AS(json.value("text", 1), std::domain_error);
  for (const char* key : {"null", "bool", "int", "text"}) {
    CHECK_THROWS_AS(json[key].size(), std::domain_error);
    CHECK_THROWS_AS(json[key].empty(), std::domain_error);
    CHECK_THROWS_AS(json[key].begin() != json[key].end(), std::domain_error);
    CHECK_THROWS_AS(json[key].items().end(), std::domain_error);
    CHECK_THROWS_AS(json[key].get<std::vector<int>>(), std::domain_error);
  }
  for (const char* key : {"null", "bool", "text", "array", "object"}) {
    CHECK_THROWS_AS(json[key].get<int>(), std::domain_error);
    CHECK_THROWS_AS(json[key].get<double>(), std::domain_error);
    CHECK_THROWS_AS(json[key] < 1, std::domain_error);
    CHECK_THROWS_AS(json[key] < json["int"], std::domain_error);
    CHECK_THROWS_AS(json["int"] < json[key], std::domain_error);
  }
  CHECK_THROWS_AS(json["half"].get<int>(), std::domain_error);
  CHECK_THROWS_AS(json["int"].get<bool>(), std::domain_error);
  CHECK_THROWS_AS(json["int"].get<std::string>(), std::domain_error);
  CHECK_THROWS_AS(json["array"].get<std::vector<std::string>>(),
                  std::domain_error);
  CHECK_THROWS_AS(Json()["x"], std::domain_error);
  CHECK(Json().is_null());
}

TEST_CASE("test support: json compares big integers exactly", "[support]") {
  const Json json = Json::parse(
      "[9007199254740993, -9007199254740993, 18446744073709551615, -1, "
      "9007199254740992.0]");
  CHECK(json[0] == kBeyondDouble);
  CHECK(json[0] != kBeyondDouble - 1);
  CHECK(json[0] == static_cast<uint64_t>(kBeyondDouble));
  CHECK(json[0] > kBeyondDouble - 1);
  CHECK_FALSE(json[0] > kBeyondDouble);
  CHECK(json[0] >= kBeyondDouble);
  CHECK(json[0] != json[4].get<int64_t>());
  CHECK(json[0] != Json::parse("9007199254740992"));
  CHECK(json[0] > Json::parse("9007199254740992"));
  CHECK(json[1] == -kBeyondDouble);
  CHECK(json[1] < 1 - kBeyondDouble);
  CHECK(json[0].get<int64_t>() == kBeyondDouble);
  // With a double nlohmann compares as double.
  CHECK(json[0] == json[4]);
  CHECK(json[0] == static_cast<double>(kBeyondDouble));

  CHECK(json[2] == std::numeric_limits<uint64_t>::max());
  CHECK(json[2] != -1);
  CHECK(json[2] != json[3]);
  CHECK(json[3] != json[2]);
  CHECK(json[3] < json[2]);
  CHECK(json[3] < uint64_t{0});
  CHECK(json[2].get<uint64_t>() == std::numeric_limits<uint64_t>::max());
  CHECK_THROWS_AS(json[2].get<int64_t>(), std::domain_error);
  CHECK_THROWS_AS(json[3].get<uint64_t>(), std::domain_error);
  CHECK_THROWS_AS(json[0].get<int>(), std::domain_error);
  CHECK(json[4].get<int64_t>() == kBeyondDouble - 1);
  CHECK_THROWS_AS(Json::parse("1e300").get<int64_t>(), std::domain_error);
}

TEST_CASE("test support: json of another type is unequal", "[support]") {
  const Json json = Json::parse(R"({"int": 1, "bool": true, "text": "1",
      "null": null, "array": [1, 2.5], "mixed": ["a", 1]})");
  CHECK(json["int"] == 1);
  CHECK(1u == json["int"]);
  CHECK(json["int"] == 1.0);
  CHECK(json["int"] != true);
  CHECK(json["int"] != "1");
  CHECK(json["bool"] == true);
  CHECK(json["bool"] != 1);
  CHECK(json["bool"] != false);
  CHECK(json["text"] == "1");
  CHECK(json["text"] == std::string("1"));
  CHECK(std::string("1") == json["text"]);
  CHECK(json["text"] != 1);
  CHECK(json["text"] != nullptr);
  CHECK(json["null"] != 0);
  CHECK(json["null"] != false);
  CHECK(json["null"] != "");
  CHECK(json["array"] == std::vector<double>{1, 2.5});
  CHECK(std::vector<double>{1, 2.5} == json["array"]);
  CHECK(json["array"] != std::vector<double>{1});
  CHECK(json["array"] != std::vector<int>{1, 2});
  CHECK(json["array"] != std::vector<std::string>{"1", "2.5"});
  CHECK(json["mixed"] != std::vector<std::string>{"a", "1"});
  CHECK(json["int"] != std::vector<int>{1});
  CHECK(json["array"] != 1);
  CHECK(json != 1);
  CHECK(json["array"] != json["int"]);
  CHECK(json["int"] != json["array"]);
  CHECK(json["null"] != json["int"]);
  CHECK(json["bool"] != json["int"]);
  CHECK(json["text"] != json["int"]);
  CHECK(Json::parse("[]") != Json::parse("{}"));
  CHECK(Json::parse("[]") != Json());
  CHECK(Json() == json["null"]);
}

TEST_CASE("test support: json is equal in its depth", "[support]") {
  const Json json = Json::parse(R"({"a": [1, {"b": [true, null]}], "c": 2})");
  CHECK(json == Json::parse(R"({"c": 2.0, "a": [1, {"b": [true, null]}]})"));
  CHECK(json != Json::parse(R"({"a": [1, {"b": [true, 0]}], "c": 2})"));
  CHECK(json != Json::parse(R"({"a": [1, {"b": [true]}], "c": 2})"));
  CHECK(json != Json::parse(R"({"a": [1, {"x": [true, null]}], "c": 2})"));
  CHECK(json != Json::parse(R"({"a": [1, {"b": [true, null]}]})"));
  CHECK(json !=
        Json::parse(R"({"a": [1, {"b": [true, null]}], "c": 2, "d": 3})"));
  CHECK(json.without("c") == Json::parse(R"({"a": [1, {"b": [true, null]}]})"));
  CHECK(json.without("x") == json);
  CHECK(json["c"] == 2);
  CHECK_THROWS_AS(json["a"].without("c"), std::domain_error);
  CHECK(Json::parse("[[1, 2], [3]]") ==
        std::vector<std::vector<int>>{{1, 2}, {3}});
  CHECK(Json::parse("[[1, 2], [3]]") !=
        std::vector<std::vector<int>>{{1}, {2, 3}});
}

TEST_CASE("test support: json gives items in the order of the text",
          "[support]") {
  const Json json = Json::parse(R"({"z": 1, "a": [2, 3], "m": {"y": 4}})");
  std::string seen;
  for (const auto& [key, value] : json.items()) seen += key + value.dump();
  CHECK(seen == "z1a[2,3]m{\"y\":4}");
  seen.clear();
  for (const auto& item : json["a"].items()) {
    seen += item.key() + ":" + item.value().dump() + " ";
  }
  CHECK(seen == "0:2 1:3 ");
  std::vector<std::string> values;
  for (const Json& value : json) values.push_back(value.dump());
  CHECK(values == std::vector<std::string>{"1", "[2,3]", "{\"y\":4}"});
  CHECK(json.dump() == R"({"z":1,"a":[2,3],"m":{"y":4}})");
  CHECK(json["a"].dump(1) == "[\n 2,\n 3\n]");
  std::ostringstream out;
  out << json["a"];
  CHECK(out.str() == "[2,3]");
  CHECK(Catch::Detail::stringify(json["a"]) == "[2,3]");
  for (const Json& none : Json::parse("[]")) FAIL(none);
}

TEST_CASE("test support: json outlives the document's variable", "[support]") {
  const auto parsed = [] { return Json::parse(R"({"a": [[1, 2], [3]]})"); };
  int sum = 0;
  for (const Json& row : parsed()["a"]) {
    for (const int value : row) sum += value;
  }
  CHECK(sum == 6);
  for (const auto& [key, row] : parsed()["a"].items()) sum += row[0].get<int>();
  CHECK(sum == 10);
  const Json& kept = parsed()["a"].back()[0];
  CHECK(kept == 3);
  Json variable = parsed();
  variable = variable["a"][0];
  CHECK(variable == std::vector<int>{1, 2});
}

TEST_CASE("test support: json converts to what a variable is", "[support]") {
  const Json json = Json::parse(
      R"({"int": 3, "bool": true, "real": 0.5, "text": "key",
          "texts": ["a", "b"], "nested": [["a"], []], "big": 5e0})");
  const int number = json["int"];
  const double real = json["int"];
  const size_t size = json["int"];
  const std::string text = json["text"];
  const bool truth = json["bool"];
  CHECK(number == 3);
  CHECK(real == 3);
  CHECK(size == 3);
  CHECK(text == "key");
  CHECK(truth);
  CHECK(json["bool"]);
  CHECK(json["big"].get<int>() == 5);
  CHECK(json["real"] == Approx(0.5));
  CHECK(json["real"] < 1);
  CHECK(0.25 < json["real"]);
  CHECK(json["real"] < json["int"]);
  CHECK(json["texts"].get<std::vector<std::string>>() ==
        std::vector<std::string>{"a", "b"});
  CHECK(json["nested"].get<std::vector<std::vector<std::string>>>() ==
        std::vector<std::vector<std::string>>{{"a"}, {}});
  std::map<std::string, int> by_text;
  by_text[json["text"]] = json["int"];
  CHECK(by_text == std::map<std::string, int>{{"key", 3}});
  CHECK(json["texts"].is_array());
  CHECK(json.is_object());
  CHECK(json["texts"].is_structured());
  CHECK(json["text"].is_string());
  CHECK(json["bool"].is_boolean());
  CHECK(json["real"].is_number());
  CHECK_FALSE(json["real"].is_number_integer());
  CHECK(json["int"].is_number_integer());
  CHECK(json["real"].is_number_float());
  CHECK_FALSE(json["int"].is_number_float());
}

TEST_CASE("test support: json says when a text is not JSON", "[support]") {
  CHECK_THROWS_AS(Json::parse("{\"a\": "), std::invalid_argument);
  CHECK_THROWS_AS(Json::parse(""), std::invalid_argument);
  CHECK_THROWS_AS(Json::parse("{} {}"), std::invalid_argument);
  const Json discarded = Json::try_parse("{\"a\": ");
  CHECK(discarded.is_discarded());
  CHECK_FALSE(discarded.is_object());
  CHECK_FALSE(discarded.is_null());
  CHECK(discarded != Json());
  CHECK_THROWS_AS(discarded["a"], std::domain_error);
  CHECK_THROWS_AS(discarded.contains("a"), std::domain_error);
  CHECK_THROWS_AS(discarded.size(), std::domain_error);
  CHECK_FALSE(Json::try_parse("{}").is_discarded());
}

}  // namespace
}  // namespace pipewright::testing::json_test
