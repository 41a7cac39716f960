#include "sim/base/nearest.h"

#include <catch2/catch.hpp>

namespace pipewright::nearest_test {
namespace {

TEST_CASE("nearest: divisors on both sides", "[base]") {
  CHECK(NearestDivisors(32, 5) == "4, 8");
  CHECK(NearestDivisors(7, 3) == "1, 7");
  CHECK(NearestDivisors(8, 100) == "8");
  CHECK(NearestDivisors(8, 0) == "1");
}

TEST_CASE("nearest: digits of a number with a letter for thousands", "[base]") {
  CHECK(DigitsOf("8k") == "8192 or 8000");
  CHECK(DigitsOf(" 128 K ") == "131072 or 128000");
  CHECK(DigitsOf("2Ki") == "2048");
  CHECK(DigitsOf("1m") == "1048576 or 1000000");
  CHECK(DigitsOf("1000000g") == "1073741824000000 or 1000000000000000");
  for (const char* text : {"", "k", "8", "8kB", "8x", "-8k", "1000001k",
                           "99999999999999999999k"}) {
    CHECK(DigitsOf(text).empty());
  }
  const absl::Status status = absl::InvalidArgumentError("bad");
  CHECK(WithDigits("8x", status) == status);
  CHECK(WithDigits("8k", status).message() ==
        "bad; did you mean 8192 or 8000?");
}

TEST_CASE("nearest: nothing works", "[base]") {
  CHECK(NearestWorking(5, 10, [](int64_t) { return false; }).empty());
  CHECK(NearestWorking(5, 4, [](int64_t size) { return size <= 4; }) ==
        std::vector<int64_t>{4});
  // Far away is not near.
  CHECK(NearestWorking(int64_t{1} << 40, int64_t{1} << 50, [](int64_t size) {
          return size < 8;
        }).empty());
}

}  // namespace
}  // namespace pipewright::nearest_test
