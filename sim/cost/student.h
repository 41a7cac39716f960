// Student's t distribution: how far the mean of a few samples may be off. No
// samples here.
#pragma once

#include <cstdint>

namespace pipewright {

// t with P(|T| <= t) = `level` (in (0, 1): 0.95 for a two-sided 95 % interval)
// for `degrees` (>= 1) degrees of freedom; relative error below 1e-8 for levels
// up to 0.999. Abramowitz and Stegun, Handbook of Mathematical Functions,
// 26.7.3 to 26.7.5.
double StudentT(double level, int64_t degrees);

// P(|T| <= t) for t >= 0; absolute error below 1e-12. The same formulas.
double StudentInside(double t, int64_t degrees);

}  // namespace pipewright
