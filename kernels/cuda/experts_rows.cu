// Rows to experts and back. They come together token by token, so that nothing
// is summed by atomics.
#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 256;

// One block a token, read once.
template <typename T, int kWidth>
__global__ void DispatchKernel(const T* x, const int32_t* places, T* rows,
                               int32_t chosen, int64_t columns) {
  const int64_t token = blockIdx.x;
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * kWidth;
       column < columns; column += static_cast<int64_t>(blockDim.x) * kWidth) {
    float values[kWidth];
    Load(x + token * columns + column, values);
    for (int32_t slot = 0; slot < chosen; ++slot) {
      const int64_t row = places[token * chosen + slot];
      Store(values, rows + row * columns + column);
    }
  }
}

// One block a token.
template <typename T, int kWidth>
__global__ void CombineKernel(const T* rows, const int32_t* places,
                              const float* weights, const T* residual, T* y,
                              int32_t chosen, int64_t columns) {
  const int64_t token = blockIdx.x;
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * kWidth;
       column < columns; column += static_cast<int64_t>(blockDim.x) * kWidth) {
    float sum[kWidth] = {};
    if (residual != nullptr) Load(residual + token * columns + column, sum);
    for (int32_t slot = 0; slot < chosen; ++slot) {
      const int64_t row = places[token * chosen + slot];
      const float weight =
          weights == nullptr ? 1.0f : weights[token * chosen + slot];
      float values[kWidth];
      Load(rows + row * columns + column, values);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) {
        sum[lane] += weight * values[lane];
      }
    }
    Store(sum, y + token * columns + column);
  }
}

// One block a token, whose dy is read once and kept in registers: kItems
// vectors a thread.
template <typename T, int kWidth, int kItems>
__global__ void CombineBackwardRowKernel(const T* dy, const T* rows,
                                         const int32_t* places,
                                         const float* weights, T* drows,
                                         float* dweights, int32_t chosen,
                                         int64_t columns) {
  auto& shared = Shared<float[kWarp + 1]>();
  const int64_t token = blockIdx.x;
  const int vectors = static_cast<int>(columns / kWidth);
  const uint4* from = reinterpret_cast<const uint4*>(dy + token * columns);
  uint4 items[kItems];
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int vector = static_cast<int>(threadIdx.x + item * blockDim.x);
    if (vector < vectors) items[item] = from[vector];
  }
  for (int64_t slot = token * chosen; slot < (token + 1) * chosen; ++slot) {
    const int64_t row = places[slot];
    const float weight = weights[slot];
    float product = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int vector = static_cast<int>(threadIdx.x + item * blockDim.x);
      if (vector >= vectors) continue;
      const int64_t place = row * columns + vector * kWidth;
      float gradient[kWidth];
      float values[kWidth];
      Unpack<T>(items[item], gradient);
      Load(rows + place, values);
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) {
        product += gradient[lane] * values[lane];
        gradient[lane] *= weight;
      }
      Store(gradient, drows + place);
    }
    product = BlockSum(product, shared);
    if (threadIdx.x == 0) dweights[slot] = product;
  }
}

// Rows that registers do not hold, and those that are not made of vectors: one
// block a slot.
template <typename T, int kWidth>
__global__ void CombineBackwardKernel(const T* dy, const T* rows,
                                      const int32_t* places,
                                      const float* weights, T* drows,
                                      float* dweights, int32_t chosen,
                                      int64_t columns) {
  auto& shared = Shared<float[kWarp + 1]>();
  const int64_t slot = blockIdx.x;
  const int64_t token = slot / chosen;
  const int64_t row = places[slot];
  const float weight = weights[slot];
  float product = 0;
  for (int64_t column = static_cast<int64_t>(threadIdx.x) * kWidth;
       column < columns; column += static_cast<int64_t>(blockDim.x) * kWidth) {
    float gradient[kWidth];
    float values[kWidth];
    Load(dy + token * columns + column, gradient);
    Load(rows + row * columns + column, values);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      product += gradient[lane] * values[lane];
      gradient[lane] *= weight;
    }
    Store(gradient, drows + row * columns + column);
  }
  product = BlockSum(product, shared);
  if (threadIdx.x == 0) dweights[slot] = product;
}

}  // namespace

PwStatus DispatchRows(PwDevice* device, PwStream* stream, const PwRoute* route,
                      int64_t columns, const void* x, const int32_t* places,
                      void* rows) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_RETURN_IF_FAILED(CheckRoute("dispatch_rows", *route, columns));
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(
      Dispatch(route->type, {columns}, {x, rows}, [&](auto kind) {
        using T = typename decltype(kind)::Type;
        constexpr int kWidth = decltype(kind)::kWidth;
        Launch(DispatchKernel<T, kWidth>, static_cast<unsigned>(route->tokens),
               ThreadsForRow(columns / kWidth, kThreads), 0, queue,
               static_cast<const T*>(x), places, static_cast<T*>(rows),
               route->chosen, columns);
      }));
  return Launched("dispatch_rows");
}

PwStatus CombineRows(PwDevice* device, PwStream* stream, const PwRoute* route,
                     int64_t columns, const void* rows, const int32_t* places,
                     const float* weights, const void* residual, void* y) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_RETURN_IF_FAILED(CheckRoute("combine_rows", *route, columns));
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  const auto launch = [&](auto kind) {
    using T = typename decltype(kind)::Type;
    constexpr int kWidth = decltype(kind)::kWidth;
    Launch(CombineKernel<T, kWidth>, static_cast<unsigned>(route->tokens),
           ThreadsForRow(columns / kWidth, kThreads), 0, queue,
           static_cast<const T*>(rows), places, weights,
           static_cast<const T*>(residual), static_cast<T*>(y), route->chosen,
           columns);
  };
  PW_RETURN_IF_FAILED(
      Dispatch(route->type, {columns}, {rows, residual, y}, launch));
  return Launched("combine_rows");
}

PwStatus CombineRowsBackward(PwDevice* device, PwStream* stream,
                             const PwRoute* route, int64_t columns,
                             const void* dy, const void* rows,
                             const int32_t* places, const float* weights,
                             void* drows, float* dweights) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_RETURN_IF_FAILED(CheckRoute("combine_rows_backward", *route, columns));
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  const auto launch = [&](auto kind) {
    using T = typename decltype(kind)::Type;
    constexpr int kWidth = decltype(kind)::kWidth;
    const int64_t vectors = columns / kWidth;
    const int threads = ThreadsForRow(vectors, kThreads);
    const auto on = [&](auto kernel, int64_t blocks) {
      Launch(kernel, static_cast<unsigned>(blocks), threads, 0, queue,
             static_cast<const T*>(dy), static_cast<const T*>(rows), places,
             weights, static_cast<T*>(drows), dweights, route->chosen, columns);
    };
    const auto slot_by_slot = [&] {
      on(CombineBackwardKernel<T, kWidth>, route->tokens * route->chosen);
    };
    if constexpr (kWidth > 1) {
      WithCount<1, 2, 4>(CeilDivide(vectors, threads), [&](auto items) {
        constexpr int kItems = decltype(items)::kValue;
        if constexpr (kItems > 0) {
          on(CombineBackwardRowKernel<T, kWidth, kItems>, route->tokens);
        } else {
          slot_by_slot();
        }
      });
    } else {
      slot_by_slot();
    }
  };
  PW_RETURN_IF_FAILED(
      Dispatch(route->type, {columns}, {dy, rows, drows}, launch));
  return Launched("combine_rows_backward");
}

}  // namespace pipewright::cuda
