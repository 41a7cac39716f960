// Loads and stores of 16 bytes where shape and addresses allow, of one element
// where they do not, and the choice between the two; sums over a block.
// Arithmetic is in fp32 whatever the type in memory. For .cu files.
#ifndef PIPEWRIGHT_KERNELS_CUDA_VECTOR_CUH_
#define PIPEWRIGHT_KERNELS_CUDA_VECTOR_CUH_

#include <cuda_bf16.h>

#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/kernels.h"

namespace pipewright::cuda {

constexpr int kVectorBytes = 16;
constexpr int kWarp = 32;

__device__ inline float ToFloat(float value) { return value; }
__device__ inline float ToFloat(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

template <typename T>
__device__ inline T FromFloat(float value);
template <>
__device__ inline float FromFloat<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 FromFloat<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Moved at once: 16 bytes, or 8 where four elements of 2 bytes stand beside
// four of fp32.
template <size_t kBytes>
struct Vector {
  using Type = uint4;
};
template <>
struct Vector<8> {
  using Type = uint2;
};

// The elements of a vector that lies in registers.
template <typename T, int kWidth, typename Whole>
__device__ inline void Unpack(const Whole& from, float (&to)[kWidth]) {
  static_assert(kWidth * sizeof(T) == sizeof(Whole));
  alignas(kVectorBytes) T values[kWidth];
  *reinterpret_cast<Whole*>(values) = from;
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) to[lane] = ToFloat(values[lane]);
}

template <typename T, int kWidth>
__device__ inline void Load(const T* from, float (&to)[kWidth]) {
  if constexpr (kWidth == 1) {
    to[0] = ToFloat(*from);
  } else {
    using Whole = typename Vector<kWidth * sizeof(T)>::Type;
    Unpack<T>(*reinterpret_cast<const Whole*>(from), to);
  }
}

template <typename T, int kWidth>
__device__ inline void Store(const float (&from)[kWidth], T* to) {
  if constexpr (kWidth == 1) {
    *to = FromFloat<T>(from[0]);
  } else {
    using Whole = typename Vector<kWidth * sizeof(T)>::Type;
    static_assert(kWidth * sizeof(T) == sizeof(Whole));
    alignas(kVectorBytes) T values[kWidth];
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      values[lane] = FromFloat<T>(from[lane]);
    }
    *reinterpret_cast<Whole*>(to) = *reinterpret_cast<const Whole*>(values);
  }
}

// fp32 values beside elements of another type: as many as those, 4 at a time.
template <int kWidth>
__device__ inline void LoadFloats(const float* from, float (&to)[kWidth]) {
  if constexpr (kWidth == 1) {
    to[0] = *from;
  } else {
#pragma unroll
    for (int lane = 0; lane < kWidth; lane += 4) {
      const float4 part = *reinterpret_cast<const float4*>(from + lane);
      to[lane] = part.x;
      to[lane + 1] = part.y;
      to[lane + 2] = part.z;
      to[lane + 3] = part.w;
    }
  }
}

template <int kWidth>
__device__ inline void StoreFloats(const float (&from)[kWidth], float* to) {
  if constexpr (kWidth == 1) {
    *to = from[0];
  } else {
#pragma unroll
    for (int lane = 0; lane < kWidth; lane += 4) {
      *reinterpret_cast<float4*>(to + lane) = make_float4(
          from[lane], from[lane + 1], from[lane + 2], from[lane + 3]);
    }
  }
}

// Exponential, for bf16 the fast one: its error is far below rounding's.
template <typename T>
__device__ inline float Exp(float value) {
  if constexpr (sizeof(T) == sizeof(float)) return expf(value);
  return __expf(value);
}

// What a kernel template is instantiated for.
template <typename T, int kElements>
struct Shape {
  using Type = T;
  static constexpr int kWidth = kElements;
  // Beside values of fp32: as many as those are in 16 bytes. With more, the
  // lanes of a warp would leave gaps between their vectors of fp32.
  static constexpr int kBesideFloats = kElements < 4 ? kElements : 4;
};

// A whole number that the compiler knows.
template <int kNumber>
struct Count {
  static constexpr int kValue = kNumber;
};

// Calls function(Count<n>()) with the first n that is at least `items`, or
// function(Count<0>()) where there is none.
template <int... kNumbers, typename Function>
void WithCount(int64_t items, Function function) {
  bool done = false;
  const auto one = [&](auto count) {
    if (done || items > count.kValue) return;
    function(count);
    done = true;
  };
  (one(Count<kNumbers>()), ...);
  if (!done) function(Count<0>());
}

// Calls function(Shape<T, width>()) with 16 bytes' worth of elements where
// every length (in elements) is a multiple of that and every address aligned.
// Error: PW_INVALID for a type that there are no kernels of.
template <typename Function>
PwStatus Dispatch(PwType type, std::initializer_list<int64_t> lengths,
                  std::initializer_list<const void*> addresses,
                  Function function) {
  const int64_t element = type == PW_BF16 ? 2 : 4;
  bool wide = true;
  for (const int64_t length : lengths) {
    wide = wide && length * element % kVectorBytes == 0;
  }
  for (const void* address : addresses) {
    wide = wide && AlignmentOf(address, kVectorBytes) == kVectorBytes;
  }
  switch (type) {
    case PW_FP32:
      if (wide) {
        function(Shape<float, 4>());
      } else {
        function(Shape<float, 1>());
      }
      return PW_OK;
    case PW_BF16:
      if (wide) {
        function(Shape<__nv_bfloat16, 8>());
      } else {
        function(Shape<__nv_bfloat16, 1>());
      }
      return PW_OK;
    default:
      return Fail(PW_INVALID, "only fp32 and bf16 here; fp8 is for gemm");
  }
}

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <typename Operation>
__device__ inline float WarpReduce(float value, Operation operation) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// The sum of `value` over a block of whole warps, the same in every thread and
// in a fixed order. `shared` holds 33 floats.
__device__ inline float BlockSum(float value, float* shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = WarpReduce(value, Sum());
  __syncthreads();  // the result of the call before has been read
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  if (warp == 0) {
    value = WarpReduce(lane < warps ? shared[lane] : 0.0f, Sum());
    if (lane == 0) shared[kWarp] = value;
  }
  __syncthreads();
  return shared[kWarp];
}

// Blocks of `threads` for `items` of work, one a thread.
inline unsigned BlocksFor(int64_t items, int threads) {
  return static_cast<unsigned>(CeilDivide(items, threads));
}

// Threads for a row of `items`: whole warps, at most `limit`.
inline int ThreadsForRow(int64_t items, int limit) {
  const int64_t wanted = RoundUp(items, kWarp);
  return static_cast<int>(wanted < limit ? wanted : limit);
}

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_VECTOR_CUH_
