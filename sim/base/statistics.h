// Random numbers, the distributions that they and tests of means follow, and
// medians. No state, so threads and orders of evaluation agree.
#pragma once

#include <cstdint>
#include <vector>

namespace pipewright {

// A uniform number in (0, 1) by counting: it depends on a seed and on what it
// is for, not on who asks first.
double UniformDraw(uint64_t seed, uint64_t first, uint64_t second,
                   uint64_t third);

// A quantile of the standard normal distribution; relative error below 2e-9.
double NormalQuantile(double probability);

// P(a standard normal number <= value).
double NormalBelow(double value);

// Student's t distribution, which says how far the mean of a few samples may be
// off: t with P(|T| <= t) = `level` (in (0, 1): 0.95 for a two-sided 95 %
// interval) for `degrees` (>= 1) degrees of freedom; relative error below 1e-8
// for levels up to 0.999. Abramowitz and Stegun, Handbook of Mathematical
// Functions, 26.7.3 to 26.7.5.
double StudentT(double level, int64_t degrees);

// P(|T| <= t) for t >= 0; absolute error below 1e-12. The same formulas.
double StudentInside(double t, int64_t degrees);

// The middle one, or half the sum of the two in the middle; 0 if there are no
// values. QuantileAt (sim/cost/jitter.h) gives other quantiles.
double Median(std::vector<double> values);

// The median of absolute values; 0 where there are none.
double MedianMagnitude(std::vector<double> values);

}  // namespace pipewright
