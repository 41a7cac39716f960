// The backward of RMS norm and layer norm. A block reads each of its rows once
// and keeps it in registers, several rows at a time, so that their reads and
// their sums wait together; longer rows are read twice. The sums over rows take
// two stages: each block adds up the rows it gets, every column always by the
// same thread; then the blocks' sums are added in order. So equal inputs give
// equal bits on equal devices.
#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 512;
// A multiprocessor: two hide each other's barriers.
constexpr int64_t kBlocksPerCore = 2;

template <int kWidth>
__device__ inline void InputGradient(const float (&normal)[kWidth],
                                     const float (&gains)[kWidth], float scale,
                                     float inner_mean, float product_mean,
                                     float (&gradients)[kWidth]) {
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) {
    gradients[lane] = scale * (gradients[lane] * gains[lane] - inner_mean -
                               normal[lane] * product_mean);
  }
}

template <int kWidth>
__device__ inline void AddTo(const float (&values)[kWidth],
                             float (&to)[kWidth]) {
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) to[lane] += values[lane];
}

// Means of kCount values at once: sums over a block of whole warps, over
// `width`, the same in every thread and in a fixed order. Two barriers do if
// calls follow each other: who writes `parts` again has passed the second, and
// who writes `means` again the first of the next call, behind all who read
// them.
template <int kCount>
struct BlockMeans {
  float parts[kThreads / kWarp][kCount];
  float means[kCount];

  __device__ void Take(float (&values)[kCount], float width) {
    static_assert(kCount <= kWarp);
    const int thread = static_cast<int>(threadIdx.x);
    const int warps = static_cast<int>(blockDim.x) / kWarp;
#pragma unroll
    for (int index = 0; index < kCount; ++index) {
      values[index] = WarpReduce(values[index], Sum());
    }
    // By itself, so that the exchanges above do not wait for each other.
    if (thread % kWarp == 0) {
#pragma unroll
      for (int index = 0; index < kCount; ++index) {
        parts[thread / kWarp][index] = values[index];
      }
    }
    __syncthreads();
    if (thread < kCount) {
      float total = parts[0][thread];
#pragma unroll 8
      for (int warp = 1; warp < warps; ++warp) total += parts[warp][thread];
      means[thread] = total / width;
    }
    __syncthreads();
#pragma unroll
    for (int index = 0; index < kCount; ++index) values[index] = means[index];
  }
};

// Rows of one vector a thread are at most so long; then two blocks fit into a
// multiprocessor's registers.
constexpr int kShortThreads = 288;

// Rows at a time: as many as registers hold beside the columns' sums, which are
// most with layer norm in bf16.
template <int kWidth, bool kLayer, int kItems>
__host__ __device__ constexpr int RowsAtOnce() {
  if (kItems > 2) return 1;
  if (kWidth == 8) return kItems == 1 ? 3 : kLayer ? 1 : 2;
  return 4 / kItems;
}

// dx = scale (g - mean(g) - xhat mean(g xhat)) with g = dy gamma, and without
// mean(g) for RMS. `partial`: [blocks, columns] of dgamma, then of dbeta.
//
// Vectors threadIdx.x, threadIdx.x + blockDim.x, ... of every row are the
// thread's, kItems of them at most, with the sums of their columns.
template <typename T, int kWidth, bool kLayer, int kItems>
__global__ void __launch_bounds__(kItems == 1 ? kShortThreads : kThreads,
                                  kItems == 1 ? 2 : 1)
    NormBackwardRowKernel(const T* dy, const T* x, const T* gamma,
                          const float* statistics, const T* residual, T* dx,
                          float* partial, int64_t rows, int64_t columns) {
  constexpr int kRows = RowsAtOnce<kWidth, kLayer, kItems>();
  // Registers also hold the residual's rows: it is read with the others.
  constexpr bool kEarly = kItems <= 2;
  // Sums of g xhat, then of g.
  constexpr int kSums = kLayer ? 2 * kRows : kRows;
  auto& block = Shared<BlockMeans<kSums>>();
  const int vectors = static_cast<int>(columns / kWidth);
  const int64_t step = gridDim.x;
  float gain_sums[kItems][kWidth] = {};
  float shift_sums[kItems][kWidth] = {};
  uint4 dy_items[kRows][kItems];
  uint4 x_items[kRows][kItems];
  uint4 residual_items[kRows][kItems];
  float mean[kRows];
  float scale[kRows];
  float gradients[kWidth];
  float values[kWidth];
  float gains[kWidth];
  const auto has = [&](int64_t row, int item) {
    return row < rows &&
           static_cast<int>(threadIdx.x + item * blockDim.x) < vectors;
  };
  const auto place = [&](int64_t row, int item) {
    return row * columns +
           static_cast<int>(threadIdx.x + item * blockDim.x) * kWidth;
  };
  for (int64_t first = blockIdx.x; first < rows; first += kRows * step) {
    float sums[kSums] = {};
#pragma unroll
    for (int at = 0; at < kRows; ++at) {
      const int64_t row = first + at * step;
      mean[at] = kLayer && row < rows ? statistics[2 * row] : 0.0f;
      scale[at] = row < rows ? statistics[2 * row + 1] : 0.0f;
#pragma unroll
      for (int item = 0; item < kItems; ++item) {
        if (!has(row, item)) continue;
        const int64_t here = place(row, item);
        dy_items[at][item] = *reinterpret_cast<const uint4*>(dy + here);
        x_items[at][item] = *reinterpret_cast<const uint4*>(x + here);
        if (!kEarly || residual == nullptr) continue;
        residual_items[at][item] =
            *reinterpret_cast<const uint4*>(residual + here);
      }
    }
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      if (!has(first, item)) continue;
      Load(gamma + place(0, item), gains);
#pragma unroll
      for (int at = 0; at < kRows; ++at) {
        if (!has(first + at * step, item)) continue;
        Unpack<T>(dy_items[at][item], gradients);
        Unpack<T>(x_items[at][item], values);
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
          const float normal = (values[lane] - mean[at]) * scale[at];
          const float inner = gradients[lane] * gains[lane];
          sums[at] += inner * normal;
          if constexpr (kLayer) sums[kRows + at] += inner;
          gain_sums[item][lane] += gradients[lane] * normal;
          if constexpr (kLayer) shift_sums[item][lane] += gradients[lane];
        }
      }
    }
    block.Take(sums, static_cast<float>(columns));
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      if (!has(first, item)) continue;
      Load(gamma + place(0, item), gains);
#pragma unroll
      for (int at = 0; at < kRows; ++at) {
        const int64_t row = first + at * step;
        if (!has(row, item)) continue;
        Unpack<T>(dy_items[at][item], gradients);
        Unpack<T>(x_items[at][item], values);
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
          values[lane] = (values[lane] - mean[at]) * scale[at];
        }
        float inner_mean = 0;
        if constexpr (kLayer) inner_mean = sums[kRows + at];
        InputGradient(values, gains, scale[at], inner_mean, sums[at],
                      gradients);
        if (residual != nullptr) {
          if constexpr (kEarly) {
            Unpack<T>(residual_items[at][item], values);
          } else {
            Load(residual + place(row, item), values);
          }
          AddTo(values, gradients);
        }
        Store(gradients, dx + place(row, item));
      }
    }
  }
  float* gain_partial = partial + blockIdx.x * columns;
  float* shift_partial = gain_partial + gridDim.x * columns;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (!has(0, item)) continue;
    StoreFloats(gain_sums[item], gain_partial + place(0, item));
    if constexpr (kLayer) {
      StoreFloats(shift_sums[item], shift_partial + place(0, item));
    }
  }
}

// Rows that registers do not hold, and those that are not made of vectors: the
// sums of the columns are in shared memory.
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
        values[lane] = (values[lane] - mean) * scale;
      }
      InputGradient(values, gains, scale, inner_mean, product_mean, gradients);
      if (residual != nullptr) {
        Load(residual + row * columns + column, values);
        AddTo(values, gradients);
      }
      Store(gradients, dx + row * columns + column);
    }
  }
  float* gain_partial = partial + blockIdx.x * columns;
  float* shift_partial = gain_partial + gridDim.x * columns;
  for (int64_t column = start; column < columns; column += step) {
    LoadFloats(gain_sums + column, gain_sum);
    StoreFloats(gain_sum, gain_partial + column);
    if constexpr (kLayer) {
      LoadFloats(shift_sums + column, shift_sum);
      StoreFloats(shift_sum, shift_partial + column);
    }
  }
}

// Also of rows of two vectors for each of 256 threads two blocks fit.
int ThreadsForBackward(int64_t vectors) {
  const bool halved = vectors > kShortThreads && vectors <= kThreads;
  return ThreadsForRow(halved ? CeilDivide(vectors, 2) : vectors, kThreads);
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
  const int64_t vectors = columns / kWidth;
  const int threads = ThreadsForBackward(vectors);
  const auto launch = [&](auto kernel, size_t shared) {
    Launch(kernel, static_cast<unsigned>(BackwardBlocks(device, rows)), threads,
           shared, queue, static_cast<const T*>(dy), static_cast<const T*>(x),
           static_cast<const T*>(gamma), statistics,
           static_cast<const T*>(residual), static_cast<T*>(dx), partial, rows,
           columns);
    return Launched("norm_backward");
  };
  const auto launch_long = [&]() -> PwStatus {
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
    return launch(kernel, shared);
  };
  if constexpr (kWidth > 1) {
    // Four vectors of bf16 with two sums a column do not fit in registers.
    constexpr int kMost = kLayer && sizeof(T) == 2 ? 3 : 4;
    PwStatus status = PW_OK;
    WithCount<1, 2, 3, kMost>(CeilDivide(vectors, threads), [&](auto items) {
      constexpr int kItems = decltype(items)::kValue;
      if constexpr (kItems > 0) {
        status = launch(NormBackwardRowKernel<T, kWidth, kLayer, kItems>, 0);
      } else {
        status = launch_long();
      }
    });
    return status;
  } else {
    return launch_long();
  }
}

}  // namespace

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
  return AddColumnSums(queue, partial, blocks, columns, dgamma,
                       norm == PW_LAYER_NORM ? dbeta : nullptr);
}

}  // namespace pipewright::cuda
