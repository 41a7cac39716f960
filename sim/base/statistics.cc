#include "sim/base/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>

#include "sim/base/check.h"

namespace pipewright {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014).
uint64_t Mix(uint64_t word) {
  word += 0x9e3779b97f4a7c15;
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
  word = (word ^ word >> 27) * 0x94d049bb133111eb;
  return word ^ word >> 31;
}

}  // namespace

double UniformDraw(uint64_t seed, uint64_t first, uint64_t second,
                   uint64_t third) {
  uint64_t word = Mix(seed);
  for (const uint64_t part : {first, second, third}) word = Mix(word ^ part);
  // 53 bits, in the middle of their step: never 0, never 1.
  return (static_cast<double>(word >> 11) + 0.5) * 0x1p-53;
}

// Acklam's rational approximation, sharpened by one step of Newton's method on
// erfc.
double NormalQuantile(double probability) {
  constexpr double kTail = 0.02425;
  constexpr double kCentre[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                                -2.759285104469687e+02, 1.383577518672690e+02,
                                -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double kCentreBelow[] = {
      -5.447609879822406e+01, 1.615858368580409e+02,  -1.556989798598866e+02,
      6.680131188771972e+01,  -1.328068155288572e+01, 1};
  constexpr double kTailAbove[] = {
      -7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
      -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double kTailBelow[] = {7.784695709041462e-03, 3.224671290700398e-01,
                                   2.445134137142996e+00, 3.754408661907416e+00,
                                   1};
  const auto polynomial = [](const auto& coefficients, double x) {
    double value = 0;
    for (const double coefficient : coefficients)
      value = value * x + coefficient;
    return value;
  };
  double x = 0;
  const double tail = std::min(probability, 1 - probability);
  if (tail < kTail) {
    const double q = std::sqrt(-2 * std::log(tail));
    x = polynomial(kTailAbove, q) / polynomial(kTailBelow, q);
    if (probability > 0.5) x = -x;
  } else {
    const double q = probability - 0.5;
    x = q * polynomial(kCentre, q * q) / polynomial(kCentreBelow, q * q);
  }
  const double error = std::erfc(-x / std::sqrt(2.0)) / 2 - probability;
  constexpr double kRootOfTwoPi = 2.5066282746310002;
  return x - error * kRootOfTwoPi * std::exp(x * x / 2);
}

double NormalBelow(double value) {
  return std::erfc(-value / std::sqrt(2.0)) / 2;
}

namespace {

// From here on the expansion around the normal distribution is as exact.
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
  // A double has no more digits.
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

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double MedianMagnitude(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return Median(std::move(values));
}

}  // namespace pipewright
