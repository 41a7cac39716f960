// RMS norm and layer norm, one block a row. The backward's sums over rows take
// two stages: each block adds up the rows it gets in shared memory, every
// column always by the same thread; then the blocks' sums are added in order.
// So equal inputs give equal bits on equal devices.
#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kForwardThreads = 256;
constexpr int kBackwardThreads = 512;
// Of the backward, a multiprocessor: two hide each other's barriers.
constexpr int64_t kBlocksPerCore = 2;

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

// dx = scale (g - mean(g) - xhat mean(g xhat)) with g = dy gamma, and without
// mean(g) for RMS. `partial`: [blocks, columns] of dgamma, then of dbeta.
template <typename T, int kWidth, bool kLayer>
__global__ void NormBackwardKernel(const T* dy, const T* x, const T* gamma,
                                   const float* statistics, const T* residual,
                                   T* dx, float* partial, int64_t rows,
                                   int64_t columns) {
  auto& shared = Shared<float[kWarp + 1]>();
  float* gain_sums = DynamicShared();
  float* shift_sums = gain_sums + columns;
  const int64_t start = static_cast<int64_t>(threadIdx.x) * kWidth;
  const int64_t step = static_cast<int64_t>(blockDim.x) * kWidth;
  // A thread reads and writes the sums of its own columns only, so that none
  // of this needs a barrier.
  const float zeros[kWidth] = {};
  for (int64_t column = start; column < columns; column += step) {
    StoreFloats(zeros, gain_sums + column);
    if constexpr (kLayer) StoreFloats(zeros, shift_sums + column);
  }
  float gain_sum[kWidth];
  float shift_sum[kWidth];
  float gradients[kWidth];
  float values[kWidth];
  float gains[kWidth];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* dy_row = dy + row * columns;
    const T* x_row = x + row * columns;
    const float mean = statistics[2 * row];
    const float scale = statistics[2 * row + 1];
    float sum = 0;
    float product_sum = 0;
    for (int64_t column = start; column < columns; column += step) {
      Load(dy_row + column, gradients);
      Load(x_row + column, values);
      Load(gamma + column, gains);
      LoadFloats(gain_sums + column, gain_sum);
      if constexpr (kLayer) LoadFloats(shift_sums + column, shift_sum);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) {
        const float normal = (values[lane] - mean) * scale;
        const float inner = gradients[lane] * gains[lane];
        sum += inner;
        product_sum += inner * normal;
        gain_sum[lane] += gradients[lane] * normal;
        if constexpr (kLayer) shift_sum[lane] += gradients[lane];
      }
      StoreFloats(gain_sum, gain_sums + column);
      if constexpr (kLayer) StoreFloats(shift_sum, shift_sums + column);
    }
    const float width = static_cast<float>(columns);
    const float product_mean = BlockSum(product_sum, shared) / width;
    const float inner_mean = kLayer ? BlockSum(sum, shared) / width : 0.0f;
    for (int64_t column = start; column < columns; column += step) {
      Load(dy_row + column, gradients);
      Load(x_row + column, values);
      Load(gamma + column, gains);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) {
        const float normal = (values[lane] - mean) * scale;
        gradients[lane] = scale * (gradients[lane] * gains[lane] - inner_mean -
                                   normal * product_mean);
      }
      if (residual != nullptr) {
        Load(residual + row * columns + column, values);
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
          gradients[lane] += values[lane];
        }
      }
      Store(gradients, dx + row * columns + column);
    }
  }
  float* gain_partial = partial + blockIdx.x * columns;
  float* shift_partial = gain_partial + gridDim.x * columns;
  for (int64_t column = start; column < columns; column += step) {
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      gain_partial[column + lane] = gain_sums[column + lane];
      if constexpr (kLayer) {
        shift_partial[column + lane] = shift_sums[column + lane];
      }
    }
  }
}

int64_t BackwardBlocks(const PwDevice* device, int64_t rows) {
  const int64_t most = kBlocksPerCore * device->cores;
  return rows < most ? rows : most;
}

template <typename T, int kWidth, bool kLayer>
PwStatus LaunchBackward(PwDevice* device, cudaStream_t queue, int64_t rows,
                        int64_t columns, const void* dy, const void* x,
                        const void* gamma, const float* statistics,
                        const void* residual, void* dx, float* partial) {
  const size_t shared =
      static_cast<size_t>(columns) * sizeof(float) * (kLayer ? 2 : 1);
  const auto kernel = NormBackwardKernel<T, kWidth, kLayer>;
  if (static_cast<int64_t>(shared) + 1024 > device->shared_bytes) {
    return Fail(PW_INVALID, "norm_backward: rows of " +
                                std::to_string(columns) +
                                " do not fit in this device's shared memory");
  }
  PW_CUDA(cudaFuncSetAttribute(kernel,
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared)));
  const int threads = ThreadsForRow(columns / kWidth, kBackwardThreads);
  Launch(kernel, static_cast<unsigned>(BackwardBlocks(device, rows)), threads,
         shared, queue, static_cast<const T*>(dy), static_cast<const T*>(x),
         static_cast<const T*>(gamma), statistics,
         static_cast<const T*>(residual), static_cast<T*>(dx), partial, rows,
         columns);
  return Launched("norm_backward");
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
        const int threads = ThreadsForRow(columns / kWidth, kForwardThreads);
        const auto kernel = norm == PW_LAYER_NORM
                                ? NormForwardKernel<T, kWidth, true>
                                : NormForwardKernel<T, kWidth, false>;
        Launch(kernel, static_cast<unsigned>(rows), threads, 0, queue,
               static_cast<const T*>(x), static_cast<const T*>(gamma),
               static_cast<const T*>(beta), static_cast<T*>(y), statistics,
               columns, epsilon);
      }));
  return Launched("norm_forward");
}

size_t NormWorkspace(PwDevice* device, int64_t rows, int64_t columns) {
  return static_cast<size_t>(2 * BackwardBlocks(device, rows) * columns) *
         sizeof(float);
}

PwStatus NormBackward(PwDevice* device, PwStream* stream, PwNorm norm,
                      PwType type, int64_t rows, int64_t columns,
                      const void* dy, const void* x, const void* gamma,
                      const float* statistics, const void* residual, void* dx,
                      float* dgamma, float* dbeta, void* workspace) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (rows == 0 || columns == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  float* partial = static_cast<float*>(workspace);
  PwStatus status = PW_OK;
  PW_RETURN_IF_FAILED(
      Dispatch(type, {columns}, {dy, x, gamma, residual, dx}, [&](auto shape) {
        using T = typename decltype(shape)::Type;
        constexpr int kWidth = decltype(shape)::kWidth;
        const auto launch = norm == PW_LAYER_NORM
                                ? LaunchBackward<T, kWidth, true>
                                : LaunchBackward<T, kWidth, false>;
        status = launch(device, queue, rows, columns, dy, x, gamma, statistics,
                        residual, dx, partial);
      }));
  PW_RETURN_IF_FAILED(status);
  const int64_t blocks = BackwardBlocks(device, rows);
  PW_RETURN_IF_FAILED(AddColumnSums(queue, partial, blocks, columns, dgamma));
  if (norm == PW_LAYER_NORM && dbeta != nullptr) {
    PW_RETURN_IF_FAILED(AddColumnSums(queue, partial + blocks * columns, blocks,
                                      columns, dbeta));
  }
  return PW_OK;
}

}  // namespace pipewright::cuda
