// The forward of RMS norm and layer norm, one block a row. A row is read once
// and kept in registers; longer ones are read again.
#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 256;

// Vectors threadIdx.x, threadIdx.x + blockDim.x, ... of the row are the
// thread's: kItems of them at most.
template <typename T, int kWidth, bool kLayer, int kItems>
__global__ void NormForwardRowKernel(const T* x, const T* gamma, const T* beta,
                                     T* y, float* statistics, int64_t columns,
                                     float epsilon) {
  auto& shared = Shared<float[kWarp + 1]>();
  const int64_t row = blockIdx.x;
  const int vectors = static_cast<int>(columns / kWidth);
  const uint4* from = reinterpret_cast<const uint4*>(x + row * columns);
  uint4 items[kItems];
  float values[kWidth];
  float sum = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int vector = static_cast<int>(threadIdx.x + item * blockDim.x);
    items[item] = make_uint4(0, 0, 0, 0);
    if (vector >= vectors) continue;
    items[item] = from[vector];
    if constexpr (kLayer) {
      Unpack<T>(items[item], values);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) sum += values[lane];
    }
  }
  const float mean =
      kLayer ? BlockSum(sum, shared) / static_cast<float>(columns) : 0.0f;
  float squares = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (static_cast<int>(threadIdx.x + item * blockDim.x) >= vectors) continue;
    Unpack<T>(items[item], values);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      const float difference = values[lane] - mean;
      squares += difference * difference;
    }
  }
  const float variance =
      BlockSum(squares, shared) / static_cast<float>(columns);
  const float scale = rsqrtf(variance + epsilon);
  if (threadIdx.x == 0) {
    statistics[2 * row] = mean;
    statistics[2 * row + 1] = scale;
  }
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int vector = static_cast<int>(threadIdx.x + item * blockDim.x);
    if (vector >= vectors) continue;
    const int column = vector * kWidth;
    float gains[kWidth];
    Unpack<T>(items[item], values);
    Load(gamma + column, gains);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      values[lane] = (values[lane] - mean) * scale * gains[lane];
    }
    if constexpr (kLayer) {
      float shifts[kWidth];
      Load(beta + column, shifts);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) values[lane] += shifts[lane];
    }
    Store(values, y + row * columns + column);
  }
}

// Rows that registers do not hold, and those that are not made of vectors.
template <typename T, int kWidth, bool kLayer>
__global__ void NormForwardKernel(const T* x, const T* gamma, const T* beta,
                                  T* y, float* statistics, int64_t columns,
                                  float epsilon) {
  auto& shared = Shared<float[kWarp + 1]>();
  const int64_t row = blockIdx.x;
  const T* from = x + row * columns;
  const int64_t start = static_cast<int64_t>(threadIdx.x) * kWidth;
  const int64_t step = static_cast<int64_t>(blockDim.x) * kWidth;
  float mean = 0;
  float values[kWidth];
  if constexpr (kLayer) {
    float sum = 0;
    for (int64_t column = start; column < columns; column += step) {
      Load(from + column, values);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) sum += values[lane];
    }
    mean = BlockSum(sum, shared) / static_cast<float>(columns);
  }
  float squares = 0;
  for (int64_t column = start; column < columns; column += step) {
    Load(from + column, values);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      const float difference = values[lane] - mean;
      squares += difference * difference;
    }
  }
  const float variance =
      BlockSum(squares, shared) / static_cast<float>(columns);
  const float scale = rsqrtf(variance + epsilon);
  if (threadIdx.x == 0) {
    statistics[2 * row] = mean;
    statistics[2 * row + 1] = scale;
  }
  for (int64_t column = start; column < columns; column += step) {
    float gains[kWidth];
    Load(from + column, values);
    Load(gamma + column, gains);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      values[lane] = (values[lane] - mean) * scale * gains[lane];
    }
    if constexpr (kLayer) {
      float shifts[kWidth];
      Load(beta + column, shifts);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) values[lane] += shifts[lane];
    }
    Store(values, y + row * columns + column);
  }
}

template <typename T, int kWidth, bool kLayer>
void LaunchForward(cudaStream_t queue, int64_t rows, int64_t columns,
                   float epsilon, const void* x, const void* gamma,
                   const void* beta, void* y, float* statistics) {
  const int64_t vectors = columns / kWidth;
  const int threads = ThreadsForRow(vectors, kThreads);
  const auto launch = [&](auto kernel) {
    Launch(kernel, static_cast<unsigned>(rows), threads, 0, queue,
           static_cast<const T*>(x), static_cast<const T*>(gamma),
           static_cast<const T*>(beta), static_cast<T*>(y), statistics, columns,
           epsilon);
  };
  if constexpr (kWidth > 1) {
    WithCount<1, 2, 4, 8>(CeilDivide(vectors, threads), [&](auto items) {
      constexpr int kItems = decltype(items)::kValue;
      if constexpr (kItems > 0) {
        launch(NormForwardRowKernel<T, kWidth, kLayer, kItems>);
      } else {
        launch(NormForwardKernel<T, kWidth, kLayer>);
      }
    });
  } else {
    launch(NormForwardKernel<T, kWidth, kLayer>);
  }
}

}  // namespace

PwStatus NormForward(PwDevice* device, PwStream* stream, PwNorm norm,
                     PwType type, int64_t rows, int64_t columns, float epsilon,
                     const void* x, const void* gamma, const void* beta,
                     void* y, float* statistics) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (rows == 0 || columns == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(
      Dispatch(type, {columns}, {x, gamma, beta, y}, [&](auto shape) {
        using T = typename decltype(shape)::Type;
        constexpr int kWidth = decltype(shape)::kWidth;
        const auto launch = norm == PW_LAYER_NORM
                                ? LaunchForward<T, kWidth, true>
                                : LaunchForward<T, kWidth, false>;
        launch(queue, rows, columns, epsilon, x, gamma, beta, y, statistics);
      }));
  return Launched("norm_forward");
}

}  // namespace pipewright::cuda
