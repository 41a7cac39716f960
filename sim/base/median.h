// The median of a few numbers: the middle one, or half the sum of the two in
// the middle. Other quantiles are QuantileAt's (sim/cost/jitter.h).
#pragma once

#include <vector>

namespace pipewright {

// 0 of none.
double Median(std::vector<double> values);

// Of absolute values; 0 of none.
double MedianMagnitude(std::vector<double> values);

}  // namespace pipewright
