#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, int kWidth>
__global__ void EmbeddingForwardKernel(const int32_t* ids, const T* table,
                                       const T* positions, T* y, int64_t hidden,
                                       int64_t sequence, int64_t first) {
  const int64_t token = blockIdx.x;
  const T* from = table + static_cast<int64_t>(ids[token]) * hidden;
  const T* position = positions == nullptr
                          ? nullptr
                          : positions + (first + token % sequence) * hidden;
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * kWidth;
       column < hidden; column += static_cast<int64_t>(blockDim.x) * kWidth) {
    float values[kWidth];
    Load(from + column, values);
    if (position != nullptr) {
      float shifts[kWidth];
      Load(position + column, shifts);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) values[lane] += shifts[lane];
    }
    Store(values, y + token * hidden + column);
  }
}

// Tokens with the same id meet in one row: atomics, whose order is not fixed.
// The lanes of a warp add to neighbours, so that the atomics of a warp are 128
// bytes in a row; each reads an element at a time, and four of them in flight.
template <typename T>
__global__ void TableGradientKernel(const int32_t* ids, const T* dy,
                                    float* dtable, int64_t hidden) {
  constexpr int kAhead = 4;
  const int64_t token = blockIdx.x;
  const T* from = dy + token * hidden;
  float* to = dtable + static_cast<int64_t>(ids[token]) * hidden;
  for (int64_t first = threadIdx.x; first < hidden;
       first += static_cast<int64_t>(blockDim.x) * kAhead) {
    float values[kAhead];
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const int64_t column = first + static_cast<int64_t>(blockDim.x) * ahead;
      if (column < hidden) values[ahead] = ToFloat(from[column]);
    }
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const int64_t column = first + static_cast<int64_t>(blockDim.x) * ahead;
      if (column < hidden) atomicAdd(to + column, values[ahead]);
    }
  }
}

// One block a place in the sequence; the sequences are added in order.
template <typename T, int kWidth>
__global__ void PositionGradientKernel(const T* dy, float* dpositions,
                                       int64_t tokens, int64_t hidden,
                                       int64_t sequence, int64_t first) {
  const int64_t place = blockIdx.x;
  float* to = dpositions + (first + place) * hidden;
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * kWidth;
       column < hidden; column += static_cast<int64_t>(blockDim.x) * kWidth) {
    float sum[kWidth] = {};
    for (int64_t token = place; token < tokens; token += sequence) {
      float values[kWidth];
      Load(dy + token * hidden + column, values);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) sum[lane] += values[lane];
    }
    float before[kWidth];
    LoadFloats(to + column, before);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) sum[lane] += before[lane];
    StoreFloats(sum, to + column);
  }
}

}  // namespace

PwStatus EmbeddingForward(PwDevice* device, PwStream* stream, PwType type,
                          int64_t tokens, int64_t hidden, int64_t sequence,
                          int64_t first, const int32_t* ids, const void* table,
                          const void* positions, void* y) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (tokens == 0 || hidden == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(
      Dispatch(type, {hidden}, {table, positions, y}, [&](auto shape) {
        using T = typename decltype(shape)::Type;
        constexpr int kWidth = decltype(shape)::kWidth;
        Launch(EmbeddingForwardKernel<T, kWidth>, static_cast<unsigned>(tokens),
               ThreadsForRow(hidden / kWidth, kThreads), 0, queue, ids,
               static_cast<const T*>(table), static_cast<const T*>(positions),
               static_cast<T*>(y), hidden, sequence, first);
      }));
  return Launched("embedding_forward");
}

PwStatus EmbeddingBackward(PwDevice* device, PwStream* stream, PwType type,
                           int64_t tokens, int64_t hidden, int64_t sequence,
                           int64_t first, const int32_t* ids, const void* dy,
                           float* dtable, float* dpositions) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (tokens == 0 || hidden == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(
      Dispatch(type, {hidden}, {dy, dpositions}, [&](auto shape) {
        using T = typename decltype(shape)::Type;
        constexpr int kWidth = decltype(shape)::kBesideFloats;
        Launch(TableGradientKernel<T>, static_cast<unsigned>(tokens),
               ThreadsForRow(hidden, kThreads), 0, queue, ids,
               static_cast<const T*>(dy), dtable, hidden);
        if (dpositions == nullptr) return;
        const int64_t places = sequence < tokens ? sequence : tokens;
        Launch(PositionGradientKernel<T, kWidth>, static_cast<unsigned>(places),
               ThreadsForRow(hidden / kWidth, kThreads), 0, queue,
               static_cast<const T*>(dy), dpositions, tokens, hidden, sequence,
               first);
      }));
  return Launched("embedding_backward");
}

}  // namespace pipewright::cuda
