/* The integer arithmetic of the CUDA backend that does not need a GPU: number
 * formats, launch sizes, the geometry of causal attention. Plain functions for
 * both sides, so that tests on a machine without a GPU run the same code that
 * the kernels do. */
#ifndef PIPEWRIGHT_KERNELS_CUDA_ARITHMETIC_H_
#define PIPEWRIGHT_KERNELS_CUDA_ARITHMETIC_H_

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define PW_HOST_DEVICE __host__ __device__
#else
#define PW_HOST_DEVICE
#endif

namespace pipewright::cuda {

PW_HOST_DEVICE inline int64_t CeilDivide(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

PW_HOST_DEVICE inline int64_t RoundUp(int64_t value, int64_t to) {
  return CeilDivide(value, to) * to;
}

PW_HOST_DEVICE inline uint32_t FloatBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

PW_HOST_DEVICE inline float FloatOfBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* e4m3 of the OCP 8-bit floating point specification 1.0, table 1: exponent
 * bias 7, largest 448, no infinities, 0x7f is not a number. Rounds to the
 * nearest, ties to even; what is larger than 448 becomes 448. */
PW_HOST_DEVICE inline uint8_t Fp8OfFloat(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  constexpr uint32_t kSmallestNormal = 121u << 23; /* 2^-6 */
  uint32_t code;
  if (magnitude < kSmallestNormal) {
    /* Multiples of 2^-9: adding 2^23 rounds to an integer. */
    constexpr float kRound = 8388608.0f;
    const float scaled = FloatOfBits(magnitude) * 512.0f + kRound;
    code = FloatBits(scaled) - FloatBits(kRound);
  } else {
    const uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
    code = (rounded >> 20) - ((127u - 7u) << 3);
  }
  return static_cast<uint8_t>(sign | (code < 0x7eu ? code : 0x7eu));
}

PW_HOST_DEVICE inline float FloatOfFp8(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return FloatOfBits(sign | 0x7fc00000u);
  if (magnitude < 8u) {
    const float value = static_cast<float>(magnitude) * (1.0f / 512.0f);
    return sign != 0 ? -value : value;
  }
  return FloatOfBits(sign | ((magnitude << 20) + ((127u - 7u) << 23)));
}

/* Upper half of a float, nearest, ties to even. */
PW_HOST_DEVICE inline uint16_t Bf16OfFloat(float value) {
  const uint32_t bits = FloatBits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>(bits >> 16 | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Keys that a query of causal attention sees: the last one all of them. */
PW_HOST_DEVICE inline int64_t CausalKeys(int64_t query, int64_t queries,
                                         int64_t keys) {
  return keys - queries + query + 1;
}

/* The first query that sees a key; may lie behind the last one or, for the
 * keys of slices before, be 0. */
PW_HOST_DEVICE inline int64_t FirstCausalQuery(int64_t key, int64_t queries,
                                               int64_t keys) {
  const int64_t query = key - (keys - queries);
  return query > 0 ? query : 0;
}

/* Alignment of an address in bytes, at most `limit` (a power of two). */
inline uint32_t AlignmentOf(const void* pointer, uint32_t limit) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  const uintptr_t lowest = address & (~address + 1);
  return lowest == 0 || lowest > limit ? limit : static_cast<uint32_t>(lowest);
}

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_ARITHMETIC_H_
