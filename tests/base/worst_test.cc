#include "sim/base/worst.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

namespace pipewright::worst_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double WorstOf(const std::vector<double>& errors) {
  double worst = 0;
  for (const double error : errors) worst = WorseOf(worst, error);
  return worst;
}

// The same by IsWorse, as where something is kept beside the error.
double WorstKept(const std::vector<double>& errors) {
  double worst = 0;
  for (const double error : errors) {
    if (IsWorse(error, worst)) worst = error;
  }
  return worst;
}

TEST_CASE("base: a NaN stays the worst error wherever it comes", "[base]") {
  CHECK(WorstOf({1, 3, 2}) == 3);
  CHECK(WorstKept({1, 3, 2}) == 3);
  CHECK(WorstOf({1, kInfinity, 2}) == kInfinity);
  CHECK(WorstKept({1, kInfinity, 2}) == kInfinity);
  for (const std::vector<double>& errors : {std::vector<double>{kNan, 1, 2},
                                            {1, kNan, 2},
                                            {1, 2, kNan},
                                            {kNan, 0, 0},
                                            {kNan, kInfinity},
                                            {kInfinity, kNan},
                                            {kNan, kNan}}) {
    CHECK(std::isnan(WorstOf(errors)));
    CHECK(std::isnan(WorstKept(errors)));
  }
}

}  // namespace
}  // namespace pipewright::worst_test
