// The largest of several errors where one that is not a number is worse than
// any number and stays: std::max and `>` lose a NaN or keep it by the order in
// which it comes. Header and standard library only: checks of kernels, which
// are built without the rest, use it.
#pragma once

#include <cmath>

namespace pipewright {

// The larger one; NaN where either is NaN.
inline double WorseOf(double one, double other) {
  return std::isnan(one) || one > other ? one : other;
}

// Is `error` worse than what there is so far? Never after a NaN.
inline bool IsWorse(double error, double sofar) {
  return !std::isnan(sofar) && !(error <= sofar);
}

}  // namespace pipewright
