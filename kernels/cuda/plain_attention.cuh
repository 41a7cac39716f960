// Attention without cuDNN: correct for every shape, not fast. Flash-style (Dao
// et al., arXiv 2205.14135): no matrix of scores in memory, fp32 arithmetic,
// and a backward in two kernels that each own what they write, so that there
// are no atomics and equal inputs give equal bits.
//
// One scheme in all three kernels: a block holds kTile rows of its own side
// (queries, or keys in the second), and goes over the other side in tiles.
// Each warp has kRows of the own rows; its lanes are the tile's other rows
// while scores are computed, and columns of a head while products are.
//
// For plain_attention_forward.cu and plain_attention_backward.cu.
#ifndef PIPEWRIGHT_KERNELS_CUDA_PLAIN_ATTENTION_CUH_
#define PIPEWRIGHT_KERNELS_CUDA_PLAIN_ATTENTION_CUH_

#include <string>
#include <type_traits>

#include "kernels/cuda/sdpa.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
constexpr int kTile = 32;
constexpr int kThreads = 256;
constexpr int kRows = kTile / (kThreads / kWarp);
constexpr unsigned kAll = 0xffffffffu;

// Rows of one head: row r is `stride` * r behind `first`.
template <typename T>
struct Rows {
  T* first;
  int64_t stride;
  int64_t count;
};

template <typename T>
__device__ inline Rows<T> HeadRows(T* tensor, int64_t batch, int64_t tokens,
                                   int64_t stride, int64_t head,
                                   int64_t head_dim) {
  return {tensor + batch * tokens * stride + head * head_dim, stride, tokens};
}

// One float more a row, so that a column's elements lie in different banks.
__device__ inline int Pitch(int head_dim) { return head_dim + 1; }

// Where a thread stands: a block has kTile rows of one head of one sequence of
// the batch, of them its warp kRows. The grid's second dimension
// counts query heads, or key-value heads.
struct Place {
  int warp;
  int lane;
  int64_t batch;
  int64_t head;     // in the grid
  int64_t kv_head;  // for it, where the grid has query heads
  int64_t start;    // first row of the block
  int64_t first;    // and of the warp
};

__device__ inline Place PlaceOf(const PwAttention& shape, bool kv_heads) {
  Place place;
  place.warp = static_cast<int>(threadIdx.x) / kWarp;
  place.lane = static_cast<int>(threadIdx.x) % kWarp;
  place.batch = blockIdx.z;
  place.head = blockIdx.y;
  place.kv_head =
      kv_heads ? place.head : place.head / (shape.heads / shape.kv_heads);
  place.start = static_cast<int64_t>(blockIdx.x) * kTile;
  place.first = place.start + place.warp * kRows;
  return place;
}

// Tile number `index` of a kernel's shared memory.
__device__ inline float* Tile(float* tiles, int index, int head_dim) {
  return tiles + index * kTile * Pitch(head_dim);
}

// Copies kTile rows to shared memory; rows behind the last are zeros.
template <typename T>
__device__ inline void LoadTile(const Rows<const T>& rows, int64_t start,
                                int head_dim, float* tile) {
  for (int item = static_cast<int>(threadIdx.x); item < kTile * head_dim;
       item += kThreads) {
    const int row = item / head_dim;
    const int column = item % head_dim;
    const int64_t from = start + row;
    tile[row * Pitch(head_dim) + column] =
        from < rows.count ? ToFloat(rows.first[from * rows.stride + column])
                          : 0.0f;
  }
}

// Products of the warp's own rows with the other row that is the lane's.
__device__ inline void Products(const float* own, const float* others, int warp,
                                int lane, int head_dim, float (&to)[kRows]) {
  const float* other = others + lane * Pitch(head_dim);
  const float* rows = own + warp * kRows * Pitch(head_dim);
#pragma unroll
  for (int row = 0; row < kRows; ++row) to[row] = 0;
  for (int column = 0; column < head_dim; ++column) {
    const float value = other[column];
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      to[row] += rows[row * Pitch(head_dim) + column] * value;
    }
  }
}

// sums[row][part] += sum over the tile's rows of weight[row] * tile, where
// weight is spread over the lanes and a lane has every 32nd column.
template <int kParts>
__device__ inline void AddWeighted(const float (&weights)[kRows],
                                   const float* tile, int lane, int head_dim,
                                   float (&sums)[kRows][kParts]) {
  for (int other = 0; other < kTile; ++other) {
    float weight[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      weight[row] = __shfl_sync(kAll, weights[row], other);
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int column = lane + part * kWarp;
      const float value =
          column < head_dim ? tile[other * Pitch(head_dim) + column] : 0.0f;
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        sums[row][part] += weight[row] * value;
      }
    }
  }
}

template <typename T, int kParts>
__device__ inline void StoreRows(const float (&sums)[kRows][kParts],
                                 const Rows<T>& rows, int64_t start, int lane,
                                 int head_dim) {
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    if (start + row >= rows.count) continue;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int column = lane + part * kWarp;
      if (column < head_dim) {
        rows.first[(start + row) * rows.stride + column] =
            FromFloat<T>(sums[row][part]);
      }
    }
  }
}

// Keys that a query sees; all for those behind the last, which are not stored.
__device__ inline int64_t SeenKeys(const PwAttention& shape, int64_t query) {
  if (shape.causal == 0 || query >= shape.queries) return shape.keys;
  return CausalKeys(query, shape.queries, shape.keys);
}

// Calls function with the number of columns of a lane, for heads of up to 64,
// 128 and 256. Error: PW_INVALID for larger ones.
template <typename Function>
PwStatus WithParts(int64_t head_dim, Function function) {
  if (head_dim <= 64) return function(std::integral_constant<int, 2>());
  if (head_dim <= 128) return function(std::integral_constant<int, 4>());
  if (head_dim <= 256) return function(std::integral_constant<int, 8>());
  return Fail(PW_INVALID, "attention: heads of " + std::to_string(head_dim) +
                              "; 256 is the most without cuDNN");
}

// `tiles` tiles of shared memory for a kernel. Error: PW_INVALID where the
// device has less.
template <typename Kernel>
PwStatus Reserve(const PwDevice* device, Kernel kernel, int64_t head_dim,
                 int64_t tiles, size_t* bytes) {
  *bytes = static_cast<size_t>(tiles * kTile * (head_dim + 1)) * sizeof(float);
  if (static_cast<int64_t>(*bytes) > device->shared_bytes) {
    return Fail(PW_INVALID, "attention: heads of " + std::to_string(head_dim) +
                                " do not fit in this device's shared memory");
  }
  PW_CUDA(cudaFuncSetAttribute(kernel,
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(*bytes)));
  return PW_OK;
}

inline dim3 Grid(const PwAttention& shape, int64_t rows, int64_t heads) {
  return dim3(BlocksFor(rows, kTile), static_cast<unsigned>(heads),
              static_cast<unsigned>(shape.batch));
}

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_PLAIN_ATTENTION_CUH_
