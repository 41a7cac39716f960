// fp8 as NVIDIA, Arm and Intel define it (arXiv 2209.05433, table 1). e4m3: no
// infinities, largest 448, smallest 2^-9, NaN 0x7f. e5m2, what gradients are
// stored in: exponent bias 15, largest 57344, infinities 0x7c, smallest 2^-16.
#ifndef PIPEWRIGHT_KERNELS_CPU_FP8_H_
#define PIPEWRIGHT_KERNELS_CPU_FP8_H_

#include <math.h>
#include <stdint.h>

namespace pipewright {

inline float FromFp8(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int fraction = bits & 7;
  float value = exponent == 0 ? ldexpf(fraction, -9)
                              : ldexpf(8 + fraction, exponent - 10);
  if ((bits & 0x7f) == 0x7f) value = NAN;
  return bits & 0x80 ? -value : value;
}

// To nearest, ties to even, saturating.
inline uint8_t ToFp8(float value) {
  const uint8_t sign = signbit(value) ? 0x80 : 0;
  const float size = fabsf(value);
  if (isnan(value)) return sign | 0x7f;
  if (size >= 448) return sign | 0x7e;
  // Below 2^-6 the spacing stays 2^-9.
  int exponent = size < 0x1p-6f ? -6 : ilogbf(size);
  const long steps = lrintf(ldexpf(size, 3 - exponent));
  // 16 steps are the next power of two: the carry goes into the exponent.
  const long bits = steps < 8 ? steps : (exponent + 7) * 8 + (steps - 8);
  return sign | static_cast<uint8_t>(bits);
}

inline float FromE5m2(uint8_t bits) {
  const int exponent = bits >> 2 & 31;
  const int fraction = bits & 3;
  float value = exponent == 0 ? ldexpf(fraction, -16)
                              : ldexpf(4 + fraction, exponent - 17);
  if (exponent == 31) value = fraction == 0 ? INFINITY : NAN;
  return bits & 0x80 ? -value : value;
}

// As ToFp8.
inline uint8_t ToE5m2(float value) {
  const uint8_t sign = signbit(value) ? 0x80 : 0;
  const float size = fabsf(value);
  if (isnan(value)) return sign | 0x7f;
  if (size >= 57344) return sign | 0x7b;
  // Below 2^-14 the spacing stays 2^-16.
  const int exponent = size < 0x1p-14f ? -14 : ilogbf(size);
  const long steps = lrintf(ldexpf(size, 2 - exponent));
  // 8 steps are the next power of two: the carry goes into the exponent.
  const long bits = steps < 4 ? steps : (exponent + 15) * 4 + (steps - 4);
  return sign | static_cast<uint8_t>(bits);
}

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_CPU_FP8_H_
