// softmax(scale q k^T) v by strips of queries: a strip's scores against all
// keys that it sees come from one GEMM, the softmax runs over them in cache,
// and a second GEMM multiplies by v. Backward makes the scores again from the
// kept log-sum-exp (Dao et al., arXiv 2205.14135, section 3.1). bf16 heads are
// widened to fp32 first: the GEMMs of one head are too small for AMX to win.
#include "kernels/cpu/device.h"

namespace pipewright {
namespace {

// The fastest of 32 to 256 for 512 and 2048 tokens, on a Xeon with AVX-512.
constexpr int64_t kStripRows = 128;

// A matrix of one head, fp32.
struct Head {
  float* data;
  int64_t stride;
};

int64_t StripRows(const PwAttention& shape) {
  return shape.queries < kStripRows ? shape.queries : kStripRows;
}

// Scores start on a cache line, and rows not a power of two apart.
int64_t StripStride(const PwAttention& shape) {
  return (shape.keys + 15) / 16 * 16 + 16;
}

PwStatus CheckShape(const PwAttention& shape) {
  PwStatus status = CheckSizes("attention", {{"batch", shape.batch},
                                             {"queries", shape.queries},
                                             {"keys", shape.keys},
                                             {"heads", shape.heads},
                                             {"kv_heads", shape.kv_heads},
                                             {"head_dim", shape.head_dim}});
  if (status != PW_OK) return status;
  if (shape.type != PW_FP32 && shape.type != PW_BF16) {
    return Fail(PW_INVALID, "attention: type must be fp32 or bf16");
  }
  if (shape.heads % shape.kv_heads != 0) {
    return Fail(PW_INVALID, "attention: %lld heads in %lld groups",
                static_cast<long long>(shape.heads),
                static_cast<long long>(shape.kv_heads));
  }
  if (shape.causal && shape.keys < shape.queries) {
    return Fail(PW_INVALID, "attention: causal with fewer keys than queries");
  }
  const int64_t row = shape.heads * shape.head_dim;
  if (shape.q_stride < row || shape.o_stride < row ||
      shape.k_stride < shape.kv_heads * shape.head_dim) {
    return Fail(PW_INVALID, "attention: a stride is shorter than its row");
  }
  if (!(shape.scale > 0)) {
    return Fail(PW_INVALID, "attention: the scale must be above 0");
  }
  return PW_OK;
}

size_t Workspace(PwDevice*, const PwAttention* shape, int32_t backward) {
  const int64_t rows = StripRows(*shape);
  int64_t floats = (backward ? 2 : 1) * rows * StripStride(*shape) + 2 * rows;
  if (shape->type == PW_BF16) {
    // q, o, k, v widened; backward also their gradients.
    floats += (backward ? 2 : 1) * 2 * (shape->queries + shape->keys) *
              shape->head_dim;
  }
  return floats * sizeof(float);
}

// Hands out the workspace from its start.
class Arena {
 public:
  explicit Arena(void* memory) : next_(static_cast<float*>(memory)) {}
  float* Take(int64_t floats) {
    float* taken = next_;
    next_ += floats;
    return taken;
  }

 private:
  float* next_;
};

// One call's view of heads: fp32 in place, bf16 through a widened copy.
class Heads {
 public:
  Heads(PwDevice* device, const PwAttention& shape)
      : loops_(device->loops.bf16), type_(shape.type), dim_(shape.head_dim) {}

  // Rows of the head that starts `offset` elements behind `base`.
  Head Read(const void* base, int64_t offset, int64_t rows, int64_t stride,
            float* copy) const {
    if (type_ == PW_FP32) return Direct(base, offset, stride);
    loops_.to_float(rows, dim_, static_cast<const uint16_t*>(base) + offset,
                    stride, copy, dim_);
    return {copy, dim_};
  }
  // Where to compute what Finish then brings to its place.
  Head Write(void* base, int64_t offset, int64_t stride, float* copy) const {
    if (type_ == PW_FP32) return Direct(base, offset, stride);
    return {copy, dim_};
  }
  void Finish(const Head& head, void* base, int64_t offset, int64_t rows,
              int64_t stride) const {
    if (type_ == PW_FP32) return;
    loops_.from_float(rows, dim_, head.data, head.stride,
                      static_cast<uint16_t*>(base) + offset, stride);
  }

 private:
  static Head Direct(const void* base, int64_t offset, int64_t stride) {
    return {const_cast<float*>(static_cast<const float*>(base)) + offset,
            stride};
  }

  const TypedLoops& loops_;
  PwType type_;
  int64_t dim_;
};

// The queries [first, first + rows) and the keys [0, keys) that they see.
struct Strip {
  int64_t first;
  int64_t rows;
  int64_t keys;
  int64_t visible;  // to the first query
};

Strip StripAt(const PwAttention& shape, int64_t first) {
  Strip strip;
  strip.first = first;
  strip.rows = StripRows(shape);
  if (first + strip.rows > shape.queries) strip.rows = shape.queries - first;
  const int64_t before = shape.keys - shape.queries + first;
  strip.keys = shape.causal ? before + strip.rows : shape.keys;
  strip.visible = before + 1;
  return strip;
}

// to[rows, keys] = a[rows, dim] b[keys, dim]^T.
PwStatus Scores(PwDevice* device, const Strip& strip, int64_t dim, Head a,
                Head b, float* to, int64_t stride) {
  return Sgemm(device,
               {false, true, strip.rows, strip.keys, dim, 1.0f, a.stride,
                b.stride, 0.0f, stride},
               a.data + strip.first * a.stride, b.data, to);
}

PwStatus Forward(PwDevice* device, PwStream*, const PwAttention* shape,
                 const void* q, const void* k, const void* v, void* o,
                 float* lse, void* workspace) {
  PwStatus status = CheckShape(*shape);
  if (status != PW_OK) return status;
  device->implementation = "strips:" + SgemmName(*device);
  const int64_t dim = shape->head_dim;
  const int64_t stride = StripStride(*shape);
  const int64_t group = shape->heads / shape->kv_heads;
  const bool copies = shape->type != PW_FP32;
  Arena arena(workspace);
  float* scores = arena.Take(StripRows(*shape) * stride);
  float* sums = arena.Take(StripRows(*shape));
  float* q_copy = arena.Take(copies ? shape->queries * dim : 0);
  float* o_copy = arena.Take(copies ? shape->queries * dim : 0);
  float* k_copy = arena.Take(copies ? shape->keys * dim : 0);
  float* v_copy = arena.Take(copies ? shape->keys * dim : 0);
  const Heads heads(device, *shape);
  Head keys{};
  Head values{};
  for (int64_t index = 0; index < shape->batch * shape->heads; ++index) {
    const int64_t sequence = index / shape->heads;
    const int64_t head = index % shape->heads;
    if (head % group == 0) {
      const int64_t offset =
          sequence * shape->keys * shape->k_stride + head / group * dim;
      keys = heads.Read(k, offset, shape->keys, shape->k_stride, k_copy);
      values = heads.Read(v, offset, shape->keys, shape->k_stride, v_copy);
    }
    const int64_t row = sequence * shape->queries;
    const int64_t q_offset = row * shape->q_stride + head * dim;
    const int64_t o_offset = row * shape->o_stride + head * dim;
    const Head queries =
        heads.Read(q, q_offset, shape->queries, shape->q_stride, q_copy);
    const Head out = heads.Write(o, o_offset, shape->o_stride, o_copy);
    for (int64_t first = 0; first < shape->queries; first += kStripRows) {
      const Strip strip = StripAt(*shape, first);
      status = Scores(device, strip, dim, queries, keys, scores, stride);
      if (status != PW_OK) return status;
      device->loops.softmax_strip(strip.rows, strip.keys, strip.visible,
                                  shape->causal != 0, shape->scale, stride,
                                  scores, sums,
                                  lse + index * shape->queries + first);
      float* to = out.data + first * out.stride;
      status = Sgemm(device,
                     {false, false, strip.rows, dim, strip.keys, 1.0f, stride,
                      values.stride, 0.0f, out.stride},
                     scores, values.data, to);
      if (status != PW_OK) return status;
      device->loops.divide_rows(strip.rows, dim, sums, to, out.stride);
    }
    heads.Finish(out, o, o_offset, shape->queries, shape->o_stride);
  }
  return PW_OK;
}

// What one strip of one head adds.
struct HeadGradients {
  Head q, k, v, o, d_o, dq, dk, dv;
  const float* lse;
};

PwStatus BackwardStrip(PwDevice* device, const PwAttention& shape,
                       const Strip& strip, const HeadGradients& head,
                       bool first_of_group, float* scores, float* gradients,
                       float* delta) {
  const int64_t dim = shape.head_dim;
  const int64_t stride = StripStride(shape);
  const auto at = [&strip](const Head& matrix) {
    return matrix.data + strip.first * matrix.stride;
  };
  device->loops.row_products(strip.rows, dim, at(head.d_o), head.d_o.stride,
                             at(head.o), head.o.stride, delta);
  PwStatus status = Scores(device, strip, dim, head.q, head.k, scores, stride);
  if (status != PW_OK) return status;
  status = Scores(device, strip, dim, head.d_o, head.v, gradients, stride);
  if (status != PW_OK) return status;
  device->loops.softmax_strip_backward(
      strip.rows, strip.keys, strip.visible, shape.causal != 0, shape.scale,
      stride, head.lse + strip.first, delta, scores, gradients);
  const float beta = first_of_group ? 0.0f : 1.0f;
  status = Sgemm(device,
                 {true, false, strip.keys, dim, strip.rows, 1.0f, stride,
                  head.d_o.stride, beta, head.dv.stride},
                 scores, at(head.d_o), head.dv.data);
  if (status != PW_OK) return status;
  status = Sgemm(device,
                 {true, false, strip.keys, dim, strip.rows, shape.scale, stride,
                  head.q.stride, beta, head.dk.stride},
                 gradients, at(head.q), head.dk.data);
  if (status != PW_OK) return status;
  return Sgemm(device,
               {false, false, strip.rows, dim, strip.keys, shape.scale, stride,
                head.k.stride, 0.0f, head.dq.stride},
               gradients, head.k.data, at(head.dq));
}

PwStatus Backward(PwDevice* device, PwStream*, const PwAttention* shape,
                  const void* q, const void* k, const void* v, const void* o,
                  const float* lse, const void* d_o, void* dq, void* dk,
                  void* dv, void* workspace) {
  PwStatus status = CheckShape(*shape);
  if (status != PW_OK) return status;
  device->implementation = "strips:" + SgemmName(*device);
  const int64_t dim = shape->head_dim;
  const int64_t strip_floats = StripRows(*shape) * StripStride(*shape);
  const int64_t group = shape->heads / shape->kv_heads;
  const int64_t queries = shape->queries;
  const int64_t keys = shape->keys;
  const int64_t q_floats = shape->type == PW_FP32 ? 0 : queries * dim;
  const int64_t k_floats = shape->type == PW_FP32 ? 0 : keys * dim;
  Arena arena(workspace);
  float* scores = arena.Take(strip_floats);
  float* gradients = arena.Take(strip_floats);
  float* delta = arena.Take(StripRows(*shape));
  float* q_copies[4];
  float* k_copies[4];
  for (float*& copy : q_copies) copy = arena.Take(q_floats);
  for (float*& copy : k_copies) copy = arena.Take(k_floats);
  const Heads heads(device, *shape);
  const int64_t last = (queries - 1) / kStripRows * kStripRows;
  HeadGradients one{};
  for (int64_t index = 0; index < shape->batch * shape->heads; ++index) {
    const int64_t sequence = index / shape->heads;
    const int64_t head = index % shape->heads;
    const int64_t k_offset =
        sequence * keys * shape->k_stride + head / group * dim;
    if (head % group == 0) {
      one.k = heads.Read(k, k_offset, keys, shape->k_stride, k_copies[0]);
      one.v = heads.Read(v, k_offset, keys, shape->k_stride, k_copies[1]);
      one.dk = heads.Write(dk, k_offset, shape->k_stride, k_copies[2]);
      one.dv = heads.Write(dv, k_offset, shape->k_stride, k_copies[3]);
    }
    const int64_t q_offset = sequence * queries * shape->q_stride + head * dim;
    const int64_t o_offset = sequence * queries * shape->o_stride + head * dim;
    one.q = heads.Read(q, q_offset, queries, shape->q_stride, q_copies[0]);
    one.o = heads.Read(o, o_offset, queries, shape->o_stride, q_copies[1]);
    one.d_o = heads.Read(d_o, o_offset, queries, shape->o_stride, q_copies[2]);
    one.dq = heads.Write(dq, q_offset, shape->q_stride, q_copies[3]);
    one.lse = lse + index * queries;
    // From the last strip, which sees all keys and so writes all of dk and dv.
    for (int64_t first = last; first >= 0; first -= kStripRows) {
      status = BackwardStrip(device, *shape, StripAt(*shape, first), one,
                             head % group == 0 && first == last, scores,
                             gradients, delta);
      if (status != PW_OK) return status;
    }
    heads.Finish(one.dq, dq, q_offset, queries, shape->q_stride);
    if (head % group != group - 1) continue;
    heads.Finish(one.dk, dk, k_offset, keys, shape->k_stride);
    heads.Finish(one.dv, dv, k_offset, keys, shape->k_stride);
  }
  return PW_OK;
}

}  // namespace

void AddAttention(PwKernels* kernels) {
  kernels->attention_workspace = Workspace;
  kernels->attention_forward = Forward;
  kernels->attention_backward = Backward;
}

}  // namespace pipewright
