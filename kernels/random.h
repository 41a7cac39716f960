/* What every backend does alike: the numbers behind PwKernels.random, a
 * function of (seed, index), so that any number of threads and a test's
 * reference draw the same, and the order in which experts are chosen. */
#ifndef PIPEWRIGHT_KERNELS_RANDOM_H_
#define PIPEWRIGHT_KERNELS_RANDOM_H_

#include <stdint.h>

#ifdef __CUDACC__
#define PW_BOTH static __host__ __device__ inline
#else
#define PW_BOTH static inline
#endif

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014, with the seed spread before the index is added. */
PW_BOTH uint64_t pw_random_bits(uint64_t seed, uint64_t index) {
  uint64_t bits =
      seed * 0xD1342543DE82EF95ull + (index + 1) * 0x9E3779B97F4A7C15ull;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ull;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBull;
  return bits ^ (bits >> 31);
}

/* Uniform in [-scale, scale), a multiple of scale / 2^23. */
PW_BOTH float pw_random_value(uint64_t seed, uint64_t index, float scale) {
  const uint32_t drawn = (uint32_t)(pw_random_bits(seed, index) >> 40);
  return scale * ((float)drawn * (1.0f / 8388608.0f) - 1.0f);
}

/* In [0, limit). */
PW_BOTH int32_t pw_random_id(uint64_t seed, uint64_t index, int32_t limit) {
  return (int32_t)((pw_random_bits(seed, index) >> 32) * (uint64_t)limit >> 32);
}

/* Is expert `a` with the logit `x` chosen before `b` with `y`? The larger
 * first, of equals the first; NaNs last, so that there is always a choice. */
PW_BOTH int32_t pw_route_before(float x, int32_t a, float y, int32_t b) {
  const int32_t x_is_none = x != x;
  const int32_t y_is_none = y != y;
  if (x_is_none != y_is_none) return y_is_none;
  if (!x_is_none && x != y) return x > y;
  return a < b;
}

#endif /* PIPEWRIGHT_KERNELS_RANDOM_H_ */
