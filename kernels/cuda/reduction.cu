// Sums over many rows or elements, in two stages and a fixed order, so that
// equal inputs give equal bits.
#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

// Threads of a block: kAcross columns, kDown rows at a time.
constexpr int kAcross = 32;
constexpr int kDown = 8;
// Threads down a block of the second stage: rows are few, each thread reads all
// of its own at once.
constexpr int kSumDown = 32;

// Rows that one block of the first stage adds up at least.
constexpr int64_t kRowsPerChunk = 128;

constexpr int kSquareThreads = 256;
constexpr int64_t kSquareBlocks = 1024;

__global__ void __launch_bounds__(kAcross* kSumDown)
    AddColumnSumsKernel(const float* partial, int64_t rows, int64_t columns,
                        float* first, float* second) {
  auto& sums = Shared<float[kSumDown][kAcross]>();
  const int64_t column =
      static_cast<int64_t>(blockIdx.x) * kAcross + threadIdx.x;
  partial += blockIdx.y * rows * columns;
  float sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < rows; row += kSumDown) {
      sum += partial[row * columns + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  for (int distance = kSumDown / 2; distance > 0; distance /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.y) < distance) {
      sums[threadIdx.y][threadIdx.x] +=
          sums[threadIdx.y + distance][threadIdx.x];
    }
  }
  if (threadIdx.y != 0 || column >= columns) return;
  float* y = blockIdx.y == 0 ? first : second;
  y[column] += sums[0][threadIdx.x];
}

// partial[chunk, columns] = sum of the chunk's rows of dy.
template <typename T, int kWidth>
__global__ void ChunkSumsKernel(const T* dy, int64_t rows, int64_t columns,
                                int64_t rows_per_chunk, float* partial) {
  // The lanes of a warp stand side by side.
  auto& sums = Shared<float[kWidth][kDown][kAcross]>();
  const int64_t column =
      (static_cast<int64_t>(blockIdx.x) * kAcross + threadIdx.x) * kWidth;
  const int64_t first = blockIdx.y * rows_per_chunk;
  const int64_t end =
      first + rows_per_chunk < rows ? first + rows_per_chunk : rows;
  float sum[kWidth] = {};
  if (column < columns) {
    float values[kWidth];
    for (int64_t row = first + threadIdx.y; row < end; row += kDown) {
      Load(dy + row * columns + column, values);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) sum[lane] += values[lane];
    }
  }
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) {
    sums[lane][threadIdx.y][threadIdx.x] = sum[lane];
  }
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) {
    for (int down = 1; down < kDown; ++down) {
      sum[lane] += sums[lane][down][threadIdx.x];
    }
  }
  StoreFloats(sum, partial + blockIdx.y * columns + column);
}

// Sums of a block of warps, in thread 0, always added in the same order.
__device__ void BlockPair(double* sum, double* bad) {
  auto& shared = Shared<double[2][kSquareThreads]>();
  shared[0][threadIdx.x] = *sum;
  shared[1][threadIdx.x] = *bad;
  for (int distance = kSquareThreads / 2; distance > 0; distance /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < distance) {
      shared[0][threadIdx.x] += shared[0][threadIdx.x + distance];
      shared[1][threadIdx.x] += shared[1][threadIdx.x + distance];
    }
  }
  if (threadIdx.x != 0) return;
  *sum = shared[0][0];
  *bad = shared[1][0];
}

__global__ void SquareSumKernel(const float* values, int64_t count,
                                double* partial) {
  double sum = 0;
  double bad = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kSquareThreads;
  for (int64_t index =
           static_cast<int64_t>(blockIdx.x) * kSquareThreads + threadIdx.x;
       index < count; index += step) {
    const float value = values[index];
    sum += static_cast<double>(value) * static_cast<double>(value);
    if (!isfinite(value)) bad += 1;
  }
  BlockPair(&sum, &bad);
  if (threadIdx.x != 0) return;
  partial[2 * blockIdx.x] = sum;
  partial[2 * blockIdx.x + 1] = bad;
}

__global__ void SquareSumEndKernel(const double* partial, int blocks,
                                   double* result) {
  double sum = 0;
  double bad = 0;
  for (int block = static_cast<int>(threadIdx.x); block < blocks;
       block += kSquareThreads) {
    sum += partial[2 * block];
    bad += partial[2 * block + 1];
  }
  BlockPair(&sum, &bad);
  if (threadIdx.x != 0) return;
  result[0] += sum;
  result[1] += bad;
}

}  // namespace

PwStatus AddColumnSums(cudaStream_t queue, const float* partial, int64_t rows,
                       int64_t columns, float* y, float* second) {
  const dim3 grid(BlocksFor(columns, kAcross), second == nullptr ? 1 : 2);
  Launch(AddColumnSumsKernel, grid, dim3(kAcross, kSumDown), 0, queue, partial,
         rows, columns, y, second);
  return Launched("column sums");
}

PwStatus BiasBackward(PwDevice* device, PwStream* stream, PwType type,
                      int64_t rows, int64_t columns, const void* dy,
                      float* dbias) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (rows == 0 || columns == 0) return PW_OK;
  PwStream* on = StreamOf(device, stream);
  // Enough chunks for two blocks a multiprocessor even where few columns are.
  const int64_t most = CeilDivide(rows, kRowsPerChunk);
  const int64_t tiles = CeilDivide(columns, kAcross * 8);
  int64_t chunks = CeilDivide(2 * device->cores, tiles);
  chunks = chunks < most ? chunks : most;
  const int64_t rows_per_chunk = CeilDivide(rows, chunks);
  chunks = CeilDivide(rows, rows_per_chunk);
  void* memory = nullptr;
  PW_RETURN_IF_FAILED(on->reduction.Get(
      static_cast<size_t>(chunks * columns) * sizeof(float), &memory));
  float* partial = static_cast<float*>(memory);
  PW_RETURN_IF_FAILED(Dispatch(type, {columns}, {dy}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    constexpr int kWidth = decltype(shape)::kWidth;
    const dim3 grid(BlocksFor(columns, kAcross * kWidth),
                    static_cast<unsigned>(chunks));
    Launch(ChunkSumsKernel<T, kWidth>, grid, dim3(kAcross, kDown), 0,
           on->stream, static_cast<const T*>(dy), rows, columns, rows_per_chunk,
           partial);
  }));
  PW_RETURN_IF_FAILED(Launched("bias_backward"));
  return AddColumnSums(on->stream, partial, chunks, columns, dbias, nullptr);
}

PwStatus SquareSum(PwDevice* device, PwStream* stream, int64_t count,
                   const float* values, double* result) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (count == 0) return PW_OK;
  PwStream* on = StreamOf(device, stream);
  const int64_t needed = CeilDivide(count, kSquareThreads);
  const int blocks =
      static_cast<int>(needed < kSquareBlocks ? needed : kSquareBlocks);
  void* memory = nullptr;
  PW_RETURN_IF_FAILED(on->reduction.Get(
      static_cast<size_t>(2 * kSquareBlocks) * sizeof(double), &memory));
  double* partial = static_cast<double*>(memory);
  Launch(SquareSumKernel, blocks, kSquareThreads, 0, on->stream, values, count,
         partial);
  PW_RETURN_IF_FAILED(Launched("square_sum"));
  Launch(SquareSumEndKernel, 1, kSquareThreads, 0, on->stream, partial, blocks,
         result);
  return Launched("square_sum");
}

}  // namespace pipewright::cuda
