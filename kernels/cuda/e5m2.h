// fp8 e5m2 as NVIDIA, Arm and Intel define it (arXiv 2209.05433, table 1):
// exponent bias 15, largest 57344, infinities at 0x7c, smallest 2^-16: what
// gradients are stored in. On the host; e4m3 is in arithmetic.h.
#ifndef PIPEWRIGHT_KERNELS_CUDA_E5M2_H_
#define PIPEWRIGHT_KERNELS_CUDA_E5M2_H_

#include <cmath>
#include <cstdint>
#include <limits>

namespace pipewright::cuda {

inline float FloatOfE5m2(uint8_t code) {
  const int exponent = code >> 2 & 31;
  const int fraction = code & 3;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -16)
                              : std::ldexp(static_cast<float>(4 + fraction),
                                           exponent - 17);
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  }
  return (code & 0x80) != 0 ? -value : value;
}

// To nearest, ties to even, saturating.
inline uint8_t E5m2OfFloat(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const float size = std::fabs(value);
  if (size >= 57344.0f) return sign | 0x7b;
  // Below 2^-14 the spacing stays 2^-16.
  const int exponent = size < std::ldexp(1.0f, -14) ? -14 : std::ilogb(size);
  const long steps = std::lrint(std::ldexp(size, 2 - exponent));
  // 8 steps are the next power of two: the carry goes into the exponent.
  const long bits = steps < 4 ? steps : (exponent + 15) * 4 + (steps - 4);
  return sign | static_cast<uint8_t>(bits);
}

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_E5M2_H_
