#include "kernels/cuda/plain_attention.cuh"

namespace pipewright::cuda {
namespace {

template <typename T, int kParts>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(PwAttention shape, const T* q, const T* k, const T* v, T* o,
                  float* lse) {
  float* tiles = DynamicShared();
  const int head_dim = static_cast<int>(shape.head_dim);
  float* own = Tile(tiles, 0, head_dim);
  float* keys = Tile(tiles, 1, head_dim);
  float* values = Tile(tiles, 2, head_dim);
  const auto [warp, lane, batch, head, kv_head, start, first] =
      PlaceOf(shape, /*kv_heads=*/false);
  LoadTile(HeadRows(q, batch, shape.queries, shape.q_stride, head, head_dim),
           start, head_dim, own);
  const auto k_rows =
      HeadRows(k, batch, shape.keys, shape.k_stride, kv_head, head_dim);
  const auto v_rows =
      HeadRows(v, batch, shape.keys, shape.k_stride, kv_head, head_dim);
  float maximum[kRows];
  float sum[kRows];
  float result[kRows][kParts] = {};
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    maximum[row] = -INFINITY;
    sum[row] = 0;
  }
  const int64_t end = SeenKeys(shape, start + kTile - 1);
  for (int64_t key_start = 0; key_start < end; key_start += kTile) {
    __syncthreads();
    LoadTile(k_rows, key_start, head_dim, keys);
    LoadTile(v_rows, key_start, head_dim, values);
    __syncthreads();
    float weights[kRows];
    Products(own, keys, warp, lane, head_dim, weights);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      // Every row sees key 0, so the maximum is finite from the first tile on.
      const bool seen = key_start + lane < SeenKeys(shape, first + row);
      const float score = seen ? weights[row] * shape.scale : -INFINITY;
      const float largest = fmaxf(maximum[row], WarpReduce(score, Max()));
      const float shrink = Exp<T>(maximum[row] - largest);
      weights[row] = Exp<T>(score - largest);
      sum[row] = sum[row] * shrink + WarpReduce(weights[row], Sum());
      maximum[row] = largest;
#pragma unroll
      for (int part = 0; part < kParts; ++part) result[row][part] *= shrink;
    }
    AddWeighted(weights, values, lane, head_dim, result);
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) result[row][part] /= sum[row];
    if (lane == 0 && first + row < shape.queries) {
      lse[(batch * shape.heads + head) * shape.queries + first + row] =
          maximum[row] + logf(sum[row]);
    }
  }
  StoreRows(result,
            HeadRows(o, batch, shape.queries, shape.o_stride, head, head_dim),
            first, lane, head_dim);
}

template <typename T>
PwStatus Forward(PwDevice* device, PwStream* on, const PwAttention& shape,
                 const AttentionTensors& tensors) {
  return WithParts(shape.head_dim, [&](auto parts) {
    const auto kernel = ForwardKernel<T, decltype(parts)::value>;
    size_t shared = 0;
    PW_RETURN_IF_FAILED(Reserve(device, kernel, shape.head_dim, 3, &shared));
    Launch(kernel, Grid(shape, shape.queries, shape.heads), kThreads, shared,
           on->stream, shape, static_cast<const T*>(tensors.q),
           static_cast<const T*>(tensors.k), static_cast<const T*>(tensors.v),
           static_cast<T*>(tensors.o), tensors.lse);
    return Launched("attention_forward");
  });
}

}  // namespace

PwStatus PlainAttentionForward(PwDevice* device, PwStream* on,
                               const PwAttention& shape,
                               const AttentionTensors& tensors) {
  return shape.type == PW_FP32
             ? Forward<float>(device, on, shape, tensors)
             : Forward<__nv_bfloat16>(device, on, shape, tensors);
}

}  // namespace pipewright::cuda
