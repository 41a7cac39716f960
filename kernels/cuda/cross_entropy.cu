// Softmax cross-entropy of one block a row, in one reading of the logits: each
// thread keeps a running maximum and the sum of exponentials below it
// (Milakov and Gimelshein, arXiv 1805.02867).
#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 512;

// exp(-inf - -inf) must be nothing, not "not a number".
template <typename T>
__device__ inline float Scale(float from, float to) {
  return from == to ? 1.0f : Exp<T>(from - to);
}

template <typename T>
__device__ inline void Merge(float other_maximum, float other_sum,
                             float* maximum, float* sum) {
  const float both = fmaxf(*maximum, other_maximum);
  *sum = *sum * Scale<T>(*maximum, both) +
         other_sum * Scale<T>(other_maximum, both);
  *maximum = both;
}

template <typename T, int kWidth>
__global__ void ForwardKernel(const T* logits, const int32_t* targets,
                              float* losses, float* lse, int64_t vocabulary) {
  auto& maxima = Shared<float[kThreads / kWarp]>();
  auto& sums = Shared<float[kThreads / kWarp], 1>();
  const int64_t token = blockIdx.x;
  const T* row = logits + token * vocabulary;
  float maximum = -INFINITY;
  float sum = 0;
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * kWidth;
       column < vocabulary;
       column += static_cast<int64_t>(blockDim.x) * kWidth) {
    float values[kWidth];
    Load(row + column, values);
    float largest = values[0];
#pragma unroll
    for (int lane = 1; lane < kWidth; ++lane) {
      largest = fmaxf(largest, values[lane]);
    }
    float part = 0;
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      part += Scale<T>(values[lane], largest);
    }
    Merge<T>(largest, part, &maximum, &sum);
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const float other_maximum = __shfl_xor_sync(0xffffffffu, maximum, distance);
    const float other_sum = __shfl_xor_sync(0xffffffffu, sum, distance);
    Merge<T>(other_maximum, other_sum, &maximum, &sum);
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x % kWarp == 0) {
    maxima[warp] = maximum;
    sums[warp] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int other = 1; other < static_cast<int>(blockDim.x) / kWarp; ++other) {
    Merge<T>(maxima[other], sums[other], &maximum, &sum);
  }
  const float total = maximum + logf(sum);
  lse[token] = total;
  losses[token] = total - ToFloat(row[targets[token]]);
}

template <typename T, int kWidth>
__global__ void BackwardKernel(T* logits, const int32_t* targets,
                               const float* lse, int64_t vocabulary,
                               float scale) {
  const int64_t token = blockIdx.x;
  T* row = logits + token * vocabulary;
  const float total = lse[token];
  const int64_t target = targets[token];
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * kWidth;
       column < vocabulary;
       column += static_cast<int64_t>(blockDim.x) * kWidth) {
    float values[kWidth];
    Load(row + column, values);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      const float one = column + lane == target ? 1.0f : 0.0f;
      values[lane] = (Exp<T>(values[lane] - total) - one) * scale;
    }
    Store(values, row + column);
  }
}

}  // namespace

PwStatus CrossEntropyForward(PwDevice* device, PwStream* stream, PwType type,
                             int64_t tokens, int64_t vocabulary,
                             const void* logits, const int32_t* targets,
                             float* losses, float* lse) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (tokens == 0 || vocabulary == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(Dispatch(type, {vocabulary}, {logits}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    constexpr int kWidth = decltype(shape)::kWidth;
    Launch(ForwardKernel<T, kWidth>, static_cast<unsigned>(tokens),
           ThreadsForRow(vocabulary / kWidth, kThreads), 0, queue,
           static_cast<const T*>(logits), targets, losses, lse, vocabulary);
  }));
  return Launched("cross_entropy_forward");
}

PwStatus CrossEntropyBackward(PwDevice* device, PwStream* stream, PwType type,
                              int64_t tokens, int64_t vocabulary, void* logits,
                              const int32_t* targets, const float* lse,
                              float scale) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (tokens == 0 || vocabulary == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(Dispatch(type, {vocabulary}, {logits}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    constexpr int kWidth = decltype(shape)::kWidth;
    Launch(BackwardKernel<T, kWidth>, static_cast<unsigned>(tokens),
           ThreadsForRow(vocabulary / kWidth, kThreads), 0, queue,
           static_cast<T*>(logits), targets, lse, vocabulary, scale);
  }));
  return Launched("cross_entropy_backward");
}

}  // namespace pipewright::cuda
