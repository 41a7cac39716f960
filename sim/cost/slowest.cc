#include "sim/cost/slowest.h"

#include <cmath>

namespace pipewright {
namespace {

// A box plot's whiskers, beyond which outliers are, of a normal law: between
// them lie so many deviations. [numerics]
constexpr double kDeviationsOfRange = 5.4;

// Quantile of the normal law, for `above` of 0.5 and less; off by 4.5e-4 at
// most (M. Abramowitz and I. Stegun, Handbook of Mathematical Functions,
// 26.2.23). [paper]
double DeviationsAbove(double above) {
  const double t = std::sqrt(-2 * std::log(above));
  return t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

// Where the expected largest of so many draws lies (G. Blom, Statistical
// Estimates and Transformed Beta-Variables, 1958). [paper]
constexpr double kBlomAbove = 0.625;
constexpr double kBlomBeyond = 0.25;

}  // namespace

double EnergyOfSlowest(double range, int64_t devices) {
  if (range <= 0 || devices < 2) return 1;
  const auto count = static_cast<double>(devices);
  const double largest = DeviationsAbove(kBlomAbove / (count + kBlomBeyond));
  return std::exp(3 * std::log1p(range) / kDeviationsOfRange * largest);
}

}  // namespace pipewright
