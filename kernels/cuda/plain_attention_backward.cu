#include "kernels/cuda/plain_attention.cuh"

namespace pipewright::cuda {
namespace {

// row_sums[batch, heads, queries] = sum over a head of do * o; a warp a row.
template <typename T>
__global__ void RowSumsKernel(PwAttention shape, const T* o, const T* d_o,
                              float* row_sums) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) +
                      threadIdx.x / kWarp;
  if (row >= shape.batch * shape.heads * shape.queries) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t query = row % shape.queries;
  const int64_t head = row / shape.queries % shape.heads;
  const int64_t batch = row / shape.queries / shape.heads;
  const int64_t first =
      (batch * shape.queries + query) * shape.o_stride + head * shape.head_dim;
  float sum = 0;
  for (int64_t column = lane; column < shape.head_dim; column += kWarp) {
    sum += ToFloat(o[first + column]) * ToFloat(d_o[first + column]);
  }
  sum = WarpReduce(sum, Sum());
  if (lane == 0) row_sums[row] = sum;
}

template <typename T, int kParts>
__global__ void __launch_bounds__(kThreads)
    KeyGradientKernel(PwAttention shape, const T* q, const T* k, const T* v,
                      const T* d_o, const float* lse, const float* row_sums,
                      T* dk, T* dv) {
  float* tiles = DynamicShared();
  const int head_dim = static_cast<int>(shape.head_dim);
  float* own_k = Tile(tiles, 0, head_dim);
  float* own_v = Tile(tiles, 1, head_dim);
  float* queries = Tile(tiles, 2, head_dim);
  float* gradients = Tile(tiles, 3, head_dim);
  // The grid's heads are the key-value heads themselves.
  const auto [warp, lane, batch, head_of_grid, kv_head, start, first] =
      PlaceOf(shape, /*kv_heads=*/true);
  const int64_t group = shape.heads / shape.kv_heads;
  LoadTile(HeadRows(k, batch, shape.keys, shape.k_stride, kv_head, head_dim),
           start, head_dim, own_k);
  LoadTile(HeadRows(v, batch, shape.keys, shape.k_stride, kv_head, head_dim),
           start, head_dim, own_v);
  float k_gradient[kRows][kParts] = {};
  float v_gradient[kRows][kParts] = {};
  const int64_t first_query =
      shape.causal != 0 ? FirstCausalQuery(start, shape.queries, shape.keys)
                        : 0;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const auto q_rows =
        HeadRows(q, batch, shape.queries, shape.q_stride, head, head_dim);
    const auto o_rows =
        HeadRows(d_o, batch, shape.queries, shape.o_stride, head, head_dim);
    const int64_t row_start = (batch * shape.heads + head) * shape.queries;
    for (int64_t query_start = first_query / kTile * kTile;
         query_start < shape.queries; query_start += kTile) {
      __syncthreads();
      LoadTile(q_rows, query_start, head_dim, queries);
      LoadTile(o_rows, query_start, head_dim, gradients);
      __syncthreads();
      const int64_t query = query_start + lane;
      const bool real = query < shape.queries;
      const float total = real ? lse[row_start + query] : 0.0f;
      const float row_sum = real ? row_sums[row_start + query] : 0.0f;
      const int64_t seen = SeenKeys(shape, query);
      float weights[kRows];
      float changes[kRows];
      Products(own_k, queries, warp, lane, head_dim, weights);
      Products(own_v, gradients, warp, lane, head_dim, changes);
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const bool visible = real && first + row < seen;
        weights[row] =
            visible ? Exp<T>(weights[row] * shape.scale - total) : 0.0f;
        changes[row] = weights[row] * (changes[row] - row_sum) * shape.scale;
      }
      AddWeighted(weights, gradients, lane, head_dim, v_gradient);
      AddWeighted(changes, queries, lane, head_dim, k_gradient);
    }
  }
  StoreRows(k_gradient,
            HeadRows(dk, batch, shape.keys, shape.k_stride, kv_head, head_dim),
            first, lane, head_dim);
  StoreRows(v_gradient,
            HeadRows(dv, batch, shape.keys, shape.k_stride, kv_head, head_dim),
            first, lane, head_dim);
}

template <typename T, int kParts>
__global__ void __launch_bounds__(kThreads)
    QueryGradientKernel(PwAttention shape, const T* q, const T* k, const T* v,
                        const T* d_o, const float* lse, const float* row_sums,
                        T* dq) {
  float* tiles = DynamicShared();
  const int head_dim = static_cast<int>(shape.head_dim);
  float* own_q = Tile(tiles, 0, head_dim);
  float* own_o = Tile(tiles, 1, head_dim);
  float* keys = Tile(tiles, 2, head_dim);
  float* values = Tile(tiles, 3, head_dim);
  const auto [warp, lane, batch, head, kv_head, start, first] =
      PlaceOf(shape, /*kv_heads=*/false);
  LoadTile(HeadRows(q, batch, shape.queries, shape.q_stride, head, head_dim),
           start, head_dim, own_q);
  LoadTile(HeadRows(d_o, batch, shape.queries, shape.o_stride, head, head_dim),
           start, head_dim, own_o);
  const auto k_rows =
      HeadRows(k, batch, shape.keys, shape.k_stride, kv_head, head_dim);
  const auto v_rows =
      HeadRows(v, batch, shape.keys, shape.k_stride, kv_head, head_dim);
  const int64_t row_start = (batch * shape.heads + head) * shape.queries;
  float result[kRows][kParts] = {};
  const int64_t end = SeenKeys(shape, start + kTile - 1);
  for (int64_t key_start = 0; key_start < end; key_start += kTile) {
    __syncthreads();
    LoadTile(k_rows, key_start, head_dim, keys);
    LoadTile(v_rows, key_start, head_dim, values);
    __syncthreads();
    float weights[kRows];
    float changes[kRows];
    Products(own_q, keys, warp, lane, head_dim, weights);
    Products(own_o, values, warp, lane, head_dim, changes);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const int64_t query = first + row;
      const bool visible =
          query < shape.queries && key_start + lane < SeenKeys(shape, query);
      const float total = visible ? lse[row_start + query] : 0.0f;
      const float row_sum = visible ? row_sums[row_start + query] : 0.0f;
      const float weight =
          visible ? Exp<T>(weights[row] * shape.scale - total) : 0.0f;
      changes[row] = weight * (changes[row] - row_sum) * shape.scale;
    }
    AddWeighted(changes, keys, lane, head_dim, result);
  }
  StoreRows(result,
            HeadRows(dq, batch, shape.queries, shape.q_stride, head, head_dim),
            first, lane, head_dim);
}

template <typename T>
PwStatus Backward(PwDevice* device, PwStream* on, const PwAttention& shape,
                  const AttentionTensors& tensors) {
  const T* q = static_cast<const T*>(tensors.q);
  const T* k = static_cast<const T*>(tensors.k);
  const T* v = static_cast<const T*>(tensors.v);
  const T* d_o = static_cast<const T*>(tensors.d_o);
  float* row_sums = static_cast<float*>(tensors.workspace);
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  Launch(RowSumsKernel<T>, BlocksFor(rows, kThreads / kWarp), kThreads, 0,
         on->stream, shape, static_cast<const T*>(tensors.o), d_o, row_sums);
  PW_RETURN_IF_FAILED(Launched("attention_backward"));
  return WithParts(shape.head_dim, [&](auto parts) {
    const auto of_keys = KeyGradientKernel<T, decltype(parts)::value>;
    const auto of_queries = QueryGradientKernel<T, decltype(parts)::value>;
    size_t shared = 0;
    PW_RETURN_IF_FAILED(Reserve(device, of_keys, shape.head_dim, 4, &shared));
    PW_RETURN_IF_FAILED(
        Reserve(device, of_queries, shape.head_dim, 4, &shared));
    Launch(of_keys, Grid(shape, shape.keys, shape.kv_heads), kThreads, shared,
           on->stream, shape, q, k, v, d_o, tensors.lse, row_sums,
           static_cast<T*>(tensors.dk), static_cast<T*>(tensors.dv));
    PW_RETURN_IF_FAILED(Launched("attention_backward"));
    Launch(of_queries, Grid(shape, shape.queries, shape.heads), kThreads,
           shared, on->stream, shape, q, k, v, d_o, tensors.lse, row_sums,
           static_cast<T*>(tensors.dq));
    return Launched("attention_backward");
  });
}

}  // namespace

PwStatus PlainAttentionBackward(PwDevice* device, PwStream* on,
                                const PwAttention& shape,
                                const AttentionTensors& tensors) {
  return shape.type == PW_FP32
             ? Backward<float>(device, on, shape, tensors)
             : Backward<__nv_bfloat16>(device, on, shape, tensors);
}

}  // namespace pipewright::cuda
