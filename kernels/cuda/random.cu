#include "kernels/random.h"

#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 256;

// An fp8 number in memory, so that the templates tell it from a byte.
struct Fp8 {
  uint8_t code;
};

__device__ inline float Widen(float value) { return value; }
__device__ inline float Widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ inline float Widen(Fp8 value) { return FloatOfFp8(value.code); }

__device__ inline void Narrow(float value, float* to) { *to = value; }
__device__ inline void Narrow(float value, __nv_bfloat16* to) {
  const __nv_bfloat16 narrow = __float2bfloat16_rn(value);
  *to = narrow;
}
__device__ inline void Narrow(float value, Fp8* to) {
  to->code = Fp8OfFloat(value);
}

template <typename T>
__global__ void RandomKernel(T* values, int64_t count, uint64_t seed,
                             float scale) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= count) return;
  Narrow(pw_random_value(seed, static_cast<uint64_t>(index), scale),
         values + index);
}

__global__ void RandomIdsKernel(int32_t* ids, int64_t count, uint64_t seed,
                                int32_t limit) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= count) return;
  ids[index] = pw_random_id(seed, static_cast<uint64_t>(index), limit);
}

template <typename From, typename To>
__global__ void ConvertKernel(const From* from, To* to, int64_t count) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index < count) Narrow(Widen(from[index]), to + index);
}

// Calls function with a value of the type that `type` names.
template <typename Function>
PwStatus WithType(PwType type, Function function) {
  switch (type) {
    case PW_FP32:
      function(float());
      return PW_OK;
    case PW_BF16:
      function(__nv_bfloat16());
      return PW_OK;
    case PW_FP8:
      function(Fp8());
      return PW_OK;
  }
  return Fail(PW_INVALID, "no such number format");
}

}  // namespace

PwStatus Random(PwDevice* device, PwStream* stream, PwType type, void* values,
                int64_t count, uint64_t seed, float scale) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (count == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(WithType(type, [&](auto sample) {
    using T = decltype(sample);
    Launch(RandomKernel<T>, BlocksFor(count, kThreads), kThreads, 0, queue,
           static_cast<T*>(values), count, seed, scale);
  }));
  return Launched("random");
}

PwStatus RandomIds(PwDevice* device, PwStream* stream, int32_t* ids,
                   int64_t count, uint64_t seed, int32_t limit) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (limit < 1) return Fail(PW_INVALID, "random_ids: limit must be above 0");
  if (count == 0) return PW_OK;
  Launch(RandomIdsKernel, BlocksFor(count, kThreads), kThreads, 0,
         StreamOf(device, stream)->stream, ids, count, seed, limit);
  return Launched("random_ids");
}

PwStatus Convert(PwDevice* device, PwStream* stream, PwType to_type, void* to,
                 PwType from_type, const void* from, int64_t count) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (count == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PwStatus inner = PW_OK;
  PW_RETURN_IF_FAILED(WithType(from_type, [&](auto from_sample) {
    using From = decltype(from_sample);
    inner = WithType(to_type, [&](auto to_sample) {
      using To = decltype(to_sample);
      Launch(ConvertKernel<From, To>, BlocksFor(count, kThreads), kThreads, 0,
             queue, static_cast<const From*>(from), static_cast<To*>(to),
             count);
    });
  }));
  PW_RETURN_IF_FAILED(inner);
  return Launched("convert");
}

}  // namespace pipewright::cuda
