#include "sim/base/statistics.h"

#include <catch2/catch.hpp>

namespace pipewright::median_test {

TEST_CASE("median: the middle, or between the two in the middle", "[base]") {
  CHECK(Median({}) == 0);
  CHECK(Median({3}) == 3);
  CHECK(Median({9, 1, 5}) == 5);
  CHECK(Median({9, 1, 5, 2}) == 3.5);
  CHECK(Median({-7, -1}) == -4);
}

TEST_CASE("median: of magnitudes", "[base]") {
  CHECK(MedianMagnitude({}) == 0);
  CHECK(MedianMagnitude({-3, 1, 2}) == 2);
  CHECK(MedianMagnitude({-4, 1, 2, 3}) == 2.5);
}

}  // namespace pipewright::median_test
