// Random numbers by counting: a draw depends on a seed and on what it is for,
// not on who asks first. No state, so threads and orders of evaluation agree.
#pragma once

#include <cstdint>

namespace pipewright {

// A uniform number in (0, 1) for four words.
double UniformDraw(uint64_t seed, uint64_t first, uint64_t second,
                   uint64_t third);

// A quantile of the standard normal distribution; relative error below 2e-9.
double NormalQuantile(double probability);

// P(a standard normal number <= value).
double NormalBelow(double value);

}  // namespace pipewright
