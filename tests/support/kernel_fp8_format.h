// The two formats of fp8 from their definition, as plainly as it can be said.
#ifndef PIPEWRIGHT_TESTS_SUPPORT_KERNEL_FP8_FORMAT_H_
#define PIPEWRIGHT_TESTS_SUPPORT_KERNEL_FP8_FORMAT_H_

#include <math.h>
#include <stdint.h>

#include <algorithm>

namespace pipewright {

// arXiv 2209.05433, table 1: bits of the fraction, the least exponent, the
// largest number.
struct Fp8Format {
  bool e5m2;
  int fraction;
  int least;
  float largest;
};
constexpr Fp8Format kE4m3 = {false, 3, -6, 448};
constexpr Fp8Format kE5m2 = {true, 2, -14, 57344};

// NaN for what is no finite number.
inline double ValueOf(const Fp8Format& format, uint8_t code) {
  const int fraction = code & ((1 << format.fraction) - 1);
  const int exponent = (code & 0x7f) >> format.fraction;
  const double size =
      exponent == 0 ? ldexp(fraction, format.least - format.fraction)
                    : ldexp((1 << format.fraction) + fraction,
                            exponent - 1 + format.least - format.fraction);
  if (size > format.largest) return NAN;
  return code & 0x80 ? -size : size;
}

// Between the numbers around `value`.
inline double Spacing(const Fp8Format& format, double value) {
  const int exponent =
      value == 0 ? format.least : std::max(format.least, ilogb(fabs(value)));
  return ldexp(1, exponent - format.fraction);
}

}  // namespace pipewright

#endif  // PIPEWRIGHT_TESTS_SUPPORT_KERNEL_FP8_FORMAT_H_
