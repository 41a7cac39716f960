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
