// The CPU backend's own loops, compiled once for each instruction set and
// chosen at run time (loops_*.cc), so that the binary starts on any machine.
// They check nothing: backend.cc has done that. Fixed order of all sums: equal
// inputs give equal bits on one instruction set, at any alignment.
#ifndef PIPEWRIGHT_KERNELS_CPU_LOOPS_H_
#define PIPEWRIGHT_KERNELS_CPU_LOOPS_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

namespace pipewright {

// The upper half of an fp32: bf16 in memory.
struct Bf16 {
  uint16_t bits;
};

// C[rows, columns] = alpha op(A) op(B) + beta C, row-major, fp32; op is the
// transpose where asked for. `depth` is the length of the sums.
struct SgemmShape {
  bool transpose_a;
  bool transpose_b;
  int64_t rows;
  int64_t columns;
  int64_t depth;
  float alpha;
  int64_t a_stride;
  int64_t b_stride;
  float beta;
  int64_t c_stride;
};

// Loops over activations and weights of one storage type; arguments as in
// kernels.h.
struct TypedLoops {
  void (*norm_forward)(PwNorm norm, int64_t rows, int64_t columns,
                       float epsilon, const void* x, const void* gamma,
                       const void* beta, void* y, float* statistics);
  // `partial`: 2 * columns floats.
  void (*norm_backward)(PwNorm norm, int64_t rows, int64_t columns,
                        const void* dy, const void* x, const void* gamma,
                        const float* statistics, const void* residual, void* dx,
                        float* dgamma, float* dbeta, float* partial);
  void (*add)(int64_t count, const void* a, const void* b, void* y);
  void (*bias_rows)(int64_t rows, int64_t columns, const void* bias, void* y);
  void (*bias_backward)(int64_t rows, int64_t columns, const void* dy,
                        float* dbias);
  // `cosines`, `sines`: [tokens, head_dim / 2].
  void (*rotary)(int64_t tokens, int64_t heads, int64_t head_dim,
                 int64_t stride, const float* cosines, const float* sines,
                 bool inverse, void* x);
  void (*activation_forward)(PwActivation activation, int64_t rows,
                             int64_t columns, const void* x, void* y);
  void (*activation_backward)(PwActivation activation, int64_t rows,
                              int64_t columns, const void* x, const void* dy,
                              void* dx);
  void (*embedding_forward)(int64_t tokens, int64_t hidden, int64_t sequence,
                            int64_t first, const int32_t* ids,
                            const void* table, const void* positions, void* y);
  void (*embedding_backward)(int64_t tokens, int64_t hidden, int64_t sequence,
                             int64_t first, const int32_t* ids, const void* dy,
                             float* dtable, float* dpositions);
  void (*cross_entropy_forward)(int64_t tokens, int64_t vocabulary,
                                const void* logits, const int32_t* targets,
                                float* losses, float* lse);
  void (*cross_entropy_backward)(int64_t tokens, int64_t vocabulary,
                                 void* logits, const int32_t* targets,
                                 const float* lse, float scale);
  void (*random)(int64_t count, uint64_t seed, float scale, void* values);
  void (*to_float)(int64_t rows, int64_t columns, const void* from,
                   int64_t from_stride, float* to, int64_t to_stride);
  void (*from_float)(int64_t rows, int64_t columns, const float* from,
                     int64_t from_stride, void* to, int64_t to_stride);
  void (*adam)(const PwAdam* adam, int64_t count, const float* gradients,
               float* master, float* moment1, float* moment2, void* weights);
  void (*predict)(const PwAdam* adam, int64_t steps, int64_t count,
                  const float* master, const float* moment1,
                  const float* moment2, void* predicted);
  void (*choose_experts)(const PwRoute* route, const void* logits, int32_t* ids,
                         float* weights);
  void (*route_backward)(const PwRoute* route, const int32_t* ids,
                         const float* weights, const float* dweights,
                         void* dlogits);
  void (*dispatch_rows)(const PwRoute* route, int64_t columns, const void* x,
                        const int32_t* places, void* rows);
  void (*combine_rows)(const PwRoute* route, int64_t columns, const void* rows,
                       const int32_t* places, const float* weights,
                       const void* residual, void* y);
  void (*combine_rows_backward)(const PwRoute* route, int64_t columns,
                                const void* dy, const void* rows,
                                const int32_t* places, const float* weights,
                                void* drows, float* dweights);
};

struct Loops {
  const char* name;  // "avx512"
  TypedLoops fp32;
  TypedLoops bf16;
  void (*accumulate)(int64_t count, const float* x, float* y);
  void (*square_sum)(int64_t count, const float* values, double* result);
  // Attention's softmax on a strip of `rows` queries; `scores` are q k^T, row r
  // sees the first visible + r (at most `keys`; causal 0: `keys`) of them.
  // Scores become exp(scale * score - row's maximum); sums: their sums.
  void (*softmax_strip)(int64_t rows, int64_t keys, int64_t visible,
                        bool causal, float scale, int64_t stride, float* scores,
                        float* sums, float* lse);
  // Scores become probabilities, `gradients` (do v^T) those of the scores
  // before the scale.
  void (*softmax_strip_backward)(int64_t rows, int64_t keys, int64_t visible,
                                 bool causal, float scale, int64_t stride,
                                 const float* lse, const float* delta,
                                 float* scores, float* gradients);
  // x[r, :] /= sums[r].
  void (*divide_rows)(int64_t rows, int64_t columns, const float* sums,
                      float* x, int64_t stride);
  // delta[r] = sum of a[r, :] * b[r, :].
  void (*row_products)(int64_t rows, int64_t columns, const float* a,
                       int64_t a_stride, const float* b, int64_t b_stride,
                       float* delta);
  // The GEMM where oneDNN is not there. `packing`: kSgemmPacking floats.
  void (*sgemm)(const SgemmShape& shape, const float* a, const float* b,
                float* c, float* packing);
};

constexpr int64_t kSgemmDepth = 384;
constexpr int64_t kSgemmRows = 168;
constexpr int64_t kSgemmColumns = 2048;
constexpr size_t kSgemmPacking =
    kSgemmDepth * (kSgemmRows + 16 + kSgemmColumns + 64);

const Loops& PortableLoops();
#if defined(__x86_64__)
const Loops& Avx2Loops();
const Loops& Avx512Loops();
#endif

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_CPU_LOOPS_H_
