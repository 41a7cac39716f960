#include "sim/cost/student.h"

#include <cmath>
#include <numbers>

#include "sim/base/check.h"
#include "sim/cost/jitter.h"

namespace pipewright {
namespace {

// From here on the expansion around the normal distribution is as exact.
// [numerics]
constexpr int64_t kMany = 1000;

// P(|T| <= t): 26.7.3 for odd, 26.7.4 for even degrees, in `angle` =
// atan(t / sqrt(degrees)).
double Inside(double angle, int64_t degrees) {
  const double sine = std::sin(angle);
  const double cosine = std::cos(angle);
  const bool odd = degrees % 2 == 1;
  double term = odd ? cosine : 1;
  double sum = 0;
  // Powers of the cosine up to degrees - 2.
  for (int64_t power = odd ? 1 : 0; power <= degrees - 2; power += 2) {
    sum += term;
    const auto next = static_cast<double>(power);
    term *= cosine * cosine * (next + 1) / (next + 2);
  }
  return odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
}

// M. Abramowitz and I. Stegun, Handbook of Mathematical Functions, 26.7.5.
// [paper]
double Expansion(double x, double degrees) {
  const double square = x * x;
  const double first = (square + 1) / 4;
  const double second = ((5 * square + 16) * square + 3) / 96;
  const double third = (((3 * square + 19) * square + 17) * square - 15) / 384;
  const double fourth =
      ((((79 * square + 776) * square + 1482) * square - 1920) * square - 945) /
      92160;
  return x * (1 + (first +
                   (second + (third + fourth / degrees) / degrees) / degrees) /
                      degrees);
}

}  // namespace

double StudentT(double level, int64_t degrees) {
  PW_CHECK(level > 0 && level < 1 && degrees >= 1);
  if (degrees >= kMany) {
    return Expansion(NormalQuantile((1 + level) / 2),
                     static_cast<double>(degrees));
  }
  double low = 0;
  double high = std::numbers::pi / 2;
  // A double has no more digits. [numerics]
  constexpr int kHalvings = 60;
  for (int halving = 0; halving < kHalvings; ++halving) {
    const double middle = (low + high) / 2;
    (Inside(middle, degrees) < level ? low : high) = middle;
  }
  return std::sqrt(static_cast<double>(degrees)) * std::tan((low + high) / 2);
}

double StudentInside(double t, int64_t degrees) {
  PW_CHECK(t >= 0 && degrees >= 1);
  return Inside(std::atan(t / std::sqrt(static_cast<double>(degrees))),
                degrees);
}

}  // namespace pipewright
