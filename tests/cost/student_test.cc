#include "sim/base/statistics.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "sim/cost/jitter.h"

namespace pipewright::student_test {
namespace {

// Abramowitz and Stegun, table 26.10, and any other table of the distribution.
TEST_CASE("cost: Student's t is that of the tables", "[cost]") {
  struct Row {
    int64_t degrees;
    double t90, t95, t99;
  };
  for (const Row& row :
       {Row{1, 6.314, 12.706, 63.657}, Row{2, 2.920, 4.303, 9.925},
        Row{3, 2.353, 3.182, 5.841}, Row{4, 2.132, 2.776, 4.604},
        Row{5, 2.015, 2.571, 4.032}, Row{9, 1.833, 2.262, 3.250},
        Row{15, 1.753, 2.131, 2.947}, Row{16, 1.746, 2.120, 2.921},
        Row{30, 1.697, 2.042, 2.750}, Row{31, 1.696, 2.040, 2.744},
        Row{40, 1.684, 2.021, 2.704}, Row{60, 1.671, 2.000, 2.660},
        Row{120, 1.658, 1.980, 2.617}}) {
    INFO(row.degrees);
    CHECK(StudentT(0.90, row.degrees) == Approx(row.t90).margin(6e-4));
    CHECK(StudentT(0.95, row.degrees) == Approx(row.t95).margin(6e-4));
    CHECK(StudentT(0.99, row.degrees) == Approx(row.t99).margin(6e-4));
  }
}

TEST_CASE("cost: Student's t falls to the normal quantile without a jump",
          "[cost]") {
  for (const double level : {0.5, 0.9, 0.95, 0.999}) {
    double before = StudentT(level, 1);
    for (int64_t degrees = 2; degrees <= 1500; ++degrees) {
      const double now = StudentT(level, degrees);
      INFO(level << " " << degrees);
      REQUIRE(now < before);
      // Nowhere, also where the method changes, does it fall faster than the
      // expansion's first term.
      if (degrees > 30) {
        const double first = std::pow(before, 3) + before;
        const auto count = static_cast<double>(degrees);
        REQUIRE(before - now < first / (4 * (count - 1) * (count - 1)));
      }
      before = now;
    }
    CHECK(StudentT(level, 1'000'000'000) ==
          Approx(NormalQuantile((1 + level) / 2)).epsilon(1e-7));
  }
}

// The distribution has a plain form with one and two degrees of freedom.
TEST_CASE("cost: Student's t inverts the distribution", "[cost]") {
  for (const double level : {0.01, 0.5, 0.9, 0.99, 0.999}) {
    CHECK(StudentT(level, 1) ==
          Approx(std::tan(level * std::acos(-1.0) / 2)).epsilon(1e-8));
    CHECK(StudentT(level, 2) ==
          Approx(level * std::sqrt(2 / (1 - level * level))).epsilon(1e-8));
  }
}

}  // namespace
}  // namespace pipewright::student_test
