// The median of a few numbers: the middle one, or half the sum of the two in
// the middle. QuantileAt (sim/cost/jitter.h) gives other quantiles.
#pragma once

#include <vector>

namespace pipewright {

// 0 where there are no values.
double Median(std::vector<double> values);

// The median of absolute values; 0 where there are none.
double MedianMagnitude(std::vector<double> values);

}  // namespace pipewright
