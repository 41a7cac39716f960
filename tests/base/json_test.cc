// Json against nlohmann's, which reports were made of before: the same bytes.
#include "sim/base/json.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace pipewright::json_test {
namespace {

using Other = nlohmann::ordered_json;
using Random = std::mt19937_64;

std::string Dump(const Other& json, int indent) {
  return json.dump(indent, ' ', false, Other::error_handler_t::replace);
}

// What both may have to print differently, and bytes that are no UTF-8.
std::string RandomText(Random& random) {
  std::string text(random() % 12, '\0');
  const bool ascii = random() % 2 == 0;
  for (char& letter : text) {
    letter = static_cast<char>(random() % (ascii ? 128 : 256));
  }
  return text;
}

double RandomDouble(Random& random) {
  switch (random() % 4) {
    case 0:  // decimals as people write them
      return static_cast<double>(static_cast<int64_t>(random() % 2000001) -
                                 1000000) /
             1000;
    case 1:
      return static_cast<double>(static_cast<int64_t>(random()));
    default:  // any bits: denormals, NaN
      return std::bit_cast<double>(random());
  }
}

// One value, built with both.
std::pair<Json, Other> RandomValue(Random& random, int depth) {
  switch (random() % (depth > 0 ? 9 : 7)) {
    case 0:
      return {nullptr, nullptr};
    case 1: {
      const bool value = random() % 2 == 0;
      return {value, value};
    }
    case 2: {
      const auto number = static_cast<int64_t>(random());
      return {number, number};
    }
    case 3: {
      const uint64_t number = random();
      return {number, number};
    }
    case 4:
    case 5: {
      const double number = RandomDouble(random);
      return {number, number};
    }
    case 6: {
      const std::string text = RandomText(random);
      return {text, text};
    }
    case 7: {
      std::pair<Json, Other> list = {Json::array(), Other::array()};
      for (uint64_t left = random() % 5; left > 0; --left) {
        auto [ours, other] = RandomValue(random, depth - 1);
        list.first.push_back(std::move(ours));
        list.second.push_back(std::move(other));
      }
      return list;
    }
    default: {
      std::pair<Json, Other> object = {Json::object(), Other::object()};
      for (uint64_t left = random() % 5; left > 0; --left) {
        auto [ours, other] = RandomValue(random, depth - 1);
        const std::string key = RandomText(random);
        object.first[key] = std::move(ours);
        object.second[key] = std::move(other);
      }
      return object;
    }
  }
}

TEST_CASE("json: a million doubles print as nlohmann prints them") {
  Random random(38);
  int differ = 0;
  for (int left = 1000000; left > 0; --left) {
    const double number = RandomDouble(random);
    if (Json(number).dump() == Other(number).dump()) continue;
    ++differ;
    UNSCOPED_INFO(std::bit_cast<uint64_t>(number));
  }
  CHECK(differ == 0);
  using Limits = std::numeric_limits<double>;
  for (const double number :
       {0.0, -0.0, Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(),
        Limits::denorm_min(), Limits::min(), Limits::max(), 1e15, 1e16, 1e-5,
        123456789.5, 0.1 + 0.2}) {
    CHECK(Json(number).dump() == Other(number).dump());
  }
  CHECK(Json(Limits::quiet_NaN()).dump() == "null");
}

TEST_CASE("json: texts are escaped as nlohmann escapes them") {
  // Every two bytes between letters, and every one at the end.
  for (int byte = 0; byte < 256; ++byte) {
    const char first = static_cast<char>(byte);
    const std::string end = std::string("a") + first;
    CHECK(QuotedJson(end) == Dump(end, -1));
    for (int other = 0; other < 256; ++other) {
      const std::string text = {'a', first, static_cast<char>(other), 'z'};
      if (QuotedJson(text) != Dump(text, -1)) {
        FAIL("bytes " << byte << ", " << other);
      }
    }
  }
  Random random(39);
  for (int left = 200000; left > 0; --left) {
    std::string text = RandomText(random);
    // Leads of longer characters, which random bytes seldom go on with.
    for (char& letter : text) {
      if (random() % 3 == 0) letter = static_cast<char>(0xe0 + random() % 24);
      if (random() % 3 == 0) letter = static_cast<char>(0x80 + random() % 64);
    }
    if (QuotedJson(text) != Dump(text, -1)) FAIL(Dump(text, -1));
  }
}

TEST_CASE("json: nested values print and parse as with nlohmann") {
  Random random(40);
  for (int left = 20000; left > 0; --left) {
    const auto [ours, other] = RandomValue(random, 5);
    for (const int indent : {-1, 0, 2}) {
      REQUIRE(ours.dump(indent) == Dump(other, indent));
    }
    const std::string text = ours.dump(2);
    const absl::StatusOr<Json> again = ParseJson(text);
    REQUIRE(again.ok());
    CHECK(again->dump(2) == Dump(Other::parse(text), 2));
  }
}

TEST_CASE("json: braces and keys mean what they meant") {
  const std::vector<int> numbers = {1, 2};
  const std::vector<bool> flags = {true, false};
  const std::string word = "word";
  Json json = {{"a", 1},
               {"pair", {0.5, 2}},
               {"texts", {"x", word}},
               {"inner", {{"b", numbers}, {"c", flags}}},
               {"none", nullptr},
               {"empty", Json::object()}};
  CHECK(json.dump() ==
        R"({"a":1,"pair":[0.5,2],"texts":["x","word"],)"
        R"("inner":{"b":[1,2],"c":[true,false]},"none":null,"empty":{}})");
  // A key that is there keeps its place.
  json["a"] = -1;
  json["z"].push_back({word, "y"});
  Json more = {{"pair", json["inner"]["b"]}};
  more["last"] = Json::array();
  json.update(std::move(more));
  CHECK(json.dump() ==
        R"({"a":-1,"pair":[1,2],"texts":["x","word"],)"
        R"("inner":{"b":[1,2],"c":[true,false]},"none":null,"empty":{},)"
        R"("z":[["word","y"]],"last":[]})");
  CHECK(word == "word");
  // Copies are their own.
  Json copy = json;
  copy["inner"]["b"][0] = 7;
  CHECK(json["inner"]["b"] == Json(numbers));
  CHECK(copy["inner"]["b"] == Json({7, 2}));
  json = json["inner"];
  CHECK(json.dump(2) ==
        "{\n  \"b\": [\n    1,\n    2\n  ],\n  \"c\": [\n    true,\n    "
        "false\n  ]\n}");
}

TEST_CASE("json: numbers are equal by value") {
  CHECK(Json(1) == 1.0);
  CHECK(Json(1) == uint64_t{1});
  CHECK_FALSE(Json(-1) == uint64_t{0xffffffffffffffff});
  CHECK_FALSE(Json(1) == true);
  CHECK_FALSE(Json("1") == 1);
  CHECK(Json("1") == "1");
  CHECK(Json({{"a", 1}, {"b", 2}}) == Json({{"a", 1.0}, {"b", 2}}));
  CHECK_FALSE(Json({{"a", 1}, {"b", 2}}) == Json({{"b", 2}, {"a", 1}}));
  CHECK(Json(-3.5).get<int>() == -3);
  CHECK(ParseJson("18446744073709551615")->get<double>() == 0x1p64);
}

TEST_CASE("json: what is missing is seen, not made") {
  const Json json = {{"a", {1, 2}}};
  CHECK(json.find("b") == nullptr);
  CHECK(json["a"].find("b") == nullptr);
  CHECK(json.contains("a"));
  CHECK_FALSE(json.contains(""));
  CHECK(Json().empty());
  CHECK(Json().begin() == Json().end());
  CHECK(json.size() == 1);
}

TEST_CASE("json: text that is no JSON is refused") {
  const auto message = [](absl::string_view text) {
    return std::string(ParseJson(text).status().message());
  };
  CHECK(message("{\"a\": 1,\n}") ==
        "not JSON: line 2, column 1: syntax error while parsing object key - "
        "unexpected '}'; expected string literal");
  CHECK(message("1e999") == "not JSON: number overflow parsing '1e999'");
  CHECK(message("").find("unexpected end of input") != std::string::npos);
  CHECK_FALSE(message("{} {}").empty());
  CHECK_FALSE(message("\"\xff\"").empty());
  const std::string deep(1000, '[');
  CHECK(ParseJson(deep + std::string(1000, ']')).ok());
  CHECK(message("[" + deep) == "not JSON: nested deeper than 1000");
  // The last of several equal keys, at the place of the first.
  CHECK(ParseJson(R"({"a": 1, "b": [2, {}], "a": {"c": 3}})")->dump() ==
        R"({"a":{"c":3},"b":[2,{}]})");
}

}  // namespace
}  // namespace pipewright::json_test
