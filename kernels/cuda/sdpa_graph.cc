#include "kernels/cuda/sdpa_graph.h"

namespace pipewright::cuda {
namespace {

using Sizes = std::vector<int64_t>;

constexpr cudnnDataType_t kFloat = CUDNN_DATA_FLOAT;
constexpr cudnnDataType_t kHalf = CUDNN_DATA_BFLOAT16;

// The shapes of a graph's tensors: what is token-major in memory,
// [batch, tokens, heads, head_dim], is told to cuDNN as [batch, heads, tokens,
// head_dim] with these strides.
struct Shapes {
  explicit Shapes(const SdpaShape& shape) : s(shape) {}

  Sizes QuerySizes() const { return {s.batch, s.heads, s.queries, s.head_dim}; }
  Sizes KeySizes() const { return {s.batch, s.kv_heads, s.keys, s.head_dim}; }
  Sizes KeySizesTransposed() const {
    return {s.batch, s.kv_heads, s.head_dim, s.keys};
  }
  Sizes QueryStrides(int64_t token) const {
    return {s.queries * token, s.head_dim, token, 1};
  }
  Sizes KeyStrides() const {
    return {s.keys * s.k_stride, s.head_dim, s.k_stride, 1};
  }
  Sizes KeyStridesTransposed() const {
    return {s.keys * s.k_stride, s.head_dim, 1, s.k_stride};
  }
  Sizes ScoreSizes() const { return {s.batch, s.heads, s.queries, s.keys}; }
  Sizes ScoreStrides() const {
    return {s.heads * s.queries * s.keys, s.queries * s.keys, s.keys, 1};
  }
  Sizes ScoreStridesTransposed() const {
    return {s.heads * s.queries * s.keys, s.queries * s.keys, 1, s.keys};
  }
  Sizes ScoreSizesTransposed() const {
    return {s.batch, s.heads, s.keys, s.queries};
  }
  Sizes RowSizes() const { return {s.batch, s.heads, s.queries, 1}; }
  Sizes RowStrides() const { return {s.heads * s.queries, s.queries, 1, 1}; }
  // One key gradient a query head, before heads of a group are added up.
  Sizes FullKeySizes() const { return {s.batch, s.heads, s.keys, s.head_dim}; }
  Sizes FullKeyStrides() const {
    return {s.heads * s.keys * s.head_dim, s.keys * s.head_dim, s.head_dim, 1};
  }
  Sizes DenseQueryStrides() const {
    return {s.heads * s.queries * s.head_dim, s.queries * s.head_dim,
            s.head_dim, 1};
  }

  const SdpaShape& s;
};

}  // namespace

void SdpaGraph::AddForward(const SdpaShape& shape) {
  const Shapes of(shape);
  const TensorSpec scores = {kFloat, of.ScoreSizes(), of.ScoreStrides()};
  const TensorSpec rows = {kFloat, of.RowSizes(), of.RowStrides()};
  const Descriptor q =
      Real({kHalf, of.QuerySizes(), of.QueryStrides(shape.q_stride)}, kQ);
  const Descriptor k =
      Real({kHalf, of.KeySizesTransposed(), of.KeyStridesTransposed()}, kK);
  const Descriptor v = Real({kHalf, of.KeySizes(), of.KeyStrides()}, kV);
  const Descriptor o =
      Real({kHalf, of.QuerySizes(), of.QueryStrides(shape.o_stride)}, kO);
  const Descriptor statistics = Real(rows, kStatistics);

  const Descriptor products = Virtual(scores);
  MatrixProduct(q, k, products);
  const Descriptor scaled = Virtual(scores);
  Pointwise({CUDNN_POINTWISE_MUL}, products, Scalar(kScale), scaled);
  const Descriptor masked =
      shape.causal ? CausalMask(shape, scores, scaled) : scaled;

  const Descriptor maximum = Virtual(rows);
  Reduce(CUDNN_REDUCE_TENSOR_MAX, masked, maximum);
  const Descriptor shifted = Virtual(scores);
  Pointwise({CUDNN_POINTWISE_SUB}, masked, maximum, shifted);
  const Descriptor exponentials = Virtual(scores);
  Pointwise({CUDNN_POINTWISE_EXP}, shifted, nullptr, exponentials);
  const Descriptor sum = Virtual(rows);
  Reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, sum);
  const Descriptor logarithm = Virtual(rows);
  Pointwise({CUDNN_POINTWISE_LOG}, sum, nullptr, logarithm);
  Pointwise({CUDNN_POINTWISE_ADD}, maximum, logarithm, statistics);
  const Descriptor weights =
      Virtual({kHalf, of.ScoreSizes(), of.ScoreStrides()});
  Pointwise({CUDNN_POINTWISE_DIV}, exponentials, sum, weights);
  MatrixProduct(weights, v, o);
}

void SdpaGraph::AddBackward(const SdpaShape& shape) {
  const Shapes of(shape);
  const TensorSpec scores = {kFloat, of.ScoreSizes(), of.ScoreStrides()};
  const TensorSpec rows = {kFloat, of.RowSizes(), of.RowStrides()};
  const TensorSpec outputs = {kHalf, of.QuerySizes(),
                              of.QueryStrides(shape.o_stride)};
  const TensorSpec queries = {kHalf, of.QuerySizes(),
                              of.QueryStrides(shape.q_stride)};
  const TensorSpec keys = {kHalf, of.KeySizes(), of.KeyStrides()};
  const TensorSpec keys_transposed = {kHalf, of.KeySizesTransposed(),
                                      of.KeyStridesTransposed()};
  const TensorSpec scores_transposed = {kHalf, of.ScoreSizesTransposed(),
                                        of.ScoreStridesTransposed()};
  const Descriptor q = Real(queries, kQ);
  const Descriptor k = Real(keys_transposed, kK);
  const Descriptor v = Real(keys_transposed, kV);
  const Descriptor o = Real(outputs, kO);
  const Descriptor d_o = Real(outputs, kGradientO);
  const Descriptor scale = Scalar(kScale);

  // Row sums of do * o.
  const Descriptor both =
      Virtual({kFloat, of.QuerySizes(), of.QueryStrides(shape.o_stride)});
  Pointwise({CUDNN_POINTWISE_MUL}, d_o, o, both);
  const Descriptor row_sum = Virtual(rows);
  Reduce(CUDNN_REDUCE_TENSOR_ADD, both, row_sum);
  const Descriptor softmax_sum = Real(rows, kSoftmaxSum);
  Pointwise({CUDNN_POINTWISE_MUL}, row_sum, Scalar(kOne), softmax_sum);

  // The weights again, from the statistics.
  const Descriptor products = Virtual(scores);
  MatrixProduct(q, k, products);
  const Descriptor scaled = Virtual(scores);
  Pointwise({CUDNN_POINTWISE_MUL}, products, scale, scaled);
  const Descriptor shifted = Virtual(scores);
  Pointwise({CUDNN_POINTWISE_SUB}, scaled, Real(rows, kStatistics), shifted);
  const Descriptor masked =
      shape.causal ? CausalMask(shape, scores, shifted) : shifted;
  const Descriptor weights = Virtual(scores);
  Pointwise({CUDNN_POINTWISE_EXP}, masked, nullptr, weights);

  // A gradient of keys or values: one a query head, added up over a group.
  const auto to_keys = [&](Descriptor from, Descriptor by, SdpaTensor id) {
    const Descriptor transposed = Virtual(scores_transposed);
    Reshape(from, transposed);
    const Descriptor result = Real(keys, id);
    if (shape.heads == shape.kv_heads) {
      MatrixProduct(transposed, by, result);
      return;
    }
    const Descriptor full =
        Virtual({kHalf, of.FullKeySizes(), of.FullKeyStrides()});
    MatrixProduct(transposed, by, full);
    Reduce(CUDNN_REDUCE_TENSOR_ADD, full, result);
  };
  to_keys(weights, d_o, kGradientV);

  const Descriptor d_weights = Virtual(scores);
  MatrixProduct(d_o, v, d_weights);
  const Descriptor centred = Virtual(scores);
  Pointwise({CUDNN_POINTWISE_SUB}, d_weights, softmax_sum, centred);
  const Descriptor weighted = Virtual(scores);
  Pointwise({CUDNN_POINTWISE_MUL}, centred, weights, weighted);
  const Descriptor d_scores = Virtual(scores);
  Pointwise({CUDNN_POINTWISE_MUL}, weighted, scale, d_scores);
  to_keys(d_scores, q, kGradientK);

  const Descriptor plain_k = Virtual({kFloat, of.KeySizes(), of.KeyStrides()});
  Reshape(k, plain_k);
  const Descriptor accumulator =
      Real({kFloat, of.QuerySizes(), of.DenseQueryStrides()}, kAccumulator);
  MatrixProduct(d_scores, plain_k, accumulator);
  Pointwise({CUDNN_POINTWISE_IDENTITY}, accumulator, nullptr,
            Real(queries, kGradientQ));
}

}  // namespace pipewright::cuda
