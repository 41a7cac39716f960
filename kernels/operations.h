/* What the operations of kernels.h are given: types of elements, shapes, and
 * what the numbers in them mean. No pointers to data, no functions. */
#ifndef PIPEWRIGHT_KERNELS_OPERATIONS_H_
#define PIPEWRIGHT_KERNELS_OPERATIONS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum PwType { PW_FP32 = 0, PW_BF16 = 1, PW_FP8 = 2 } PwType;

/* Bytes. cuBLASLt 13.1 on an H100 refuses a product whose scale lies at another
 * multiple of 4. */
#define PW_SCALE_ALIGNMENT 16

typedef enum PwGemmPass {
  PW_GEMM_FORWARD = 0,         /* a = x[T,I], b = w[O,I] -> c = y[T,O] */
  PW_GEMM_BACKWARD_INPUT = 1,  /* a = dy[T,O], b = w[O,I] -> c = dx[T,I] */
  PW_GEMM_BACKWARD_WEIGHT = 2, /* a = x[T,I], b = dy[T,O] -> c = dw[O,I],
                                  fp32, added to what is there */
} PwGemmPass;

typedef struct PwGemm {
  PwGemmPass pass;
  PwType type; /* x, w, y, dx, dy; PW_FP8: x, w, dy, and y, dx and the bias are
                  bf16 (fp32_output: fp32) */
  int64_t tokens;
  int64_t inputs;
  int64_t outputs;
  /* Read for PW_FP8 only. 1: dy is e5m2, of a wider range, and x and w are e4m3
   * as ever (arXiv 2209.05433, section 3). */
  int32_t dy_e5m2;
  /* Factors: a stored value of a or b times its scale is what it stands for.
   * One fp32 on the device each, at a multiple of PW_SCALE_ALIGNMENT; NULL is
   * 1. All groups have the same. */
  const float* a_scale;
  const float* b_scale;
  /* For PW_FP8 only. 1: the values that the products sum over lie side by
   * side in both operands, as tensor cores before Blackwell take fp8: b of B
   * is w^T[I,O], a and b of W are x^T[I,T] and dy^T[O,T]. 0: these are
   * turned first. */
  int32_t transposed;
  int32_t fp32_output; /* for PW_FP8 only */
} PwGemm;

typedef enum PwNorm { PW_RMS_NORM = 0, PW_LAYER_NORM = 1 } PwNorm;

typedef enum PwActivation {
  PW_GELU = 0,  /* tanh form: Hendrycks and Gimpel, arXiv 1606.08415 */
  PW_SWIGLU = 1 /* silu(first half) * second half: Shazeer, 2002.05202 */
} PwActivation;

/* softmax(scale q k^T) v, heads in groups that share a key-value head.
 * q, o, dq, do: [batch, queries, heads, head_dim]; k, v, dk, dv: [batch, keys,
 * kv_heads, head_dim]; tokens of one sequence `*_stride` elements apart, its
 * sequences queries (or keys) * stride apart. Causal: the last query sees all
 * keys, the one before it all but the last, and so on (keys >= queries).
 * lse: fp32 [batch, heads, queries], the log of the sum of exponentials. */
typedef struct PwAttention {
  PwType type;
  int32_t causal;
  int64_t batch;
  int64_t queries;
  int64_t keys;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t q_stride; /* for q and dq */
  int64_t k_stride; /* for k, v, dk and dv */
  int64_t o_stride; /* for o and do */
  float scale;
} PwAttention;

/* AdamW, Loshchilov and Hutter, arXiv 1711.05101, algorithm 2. */
typedef struct PwAdam {
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float weight_decay;
  int64_t step;         /* counts from 1 */
  float gradient_scale; /* each gradient times this first: clipping */
} PwAdam;

/* Which experts tokens go to. A slot is a token and one of its `chosen`
 * experts, token by token. Weights of a token's experts: the softmax over their
 * logits alone (Mixtral, arXiv 2401.04088, section 2.1), which is the softmax
 * over all divided by its sum over the chosen. Expert e is computed by this
 * device's expert e % own. */
typedef struct PwRoute {
  PwType type; /* logits and rows */
  int64_t tokens;
  int32_t experts; /* that there are logits of; at most 65535 */
  int32_t chosen;  /* for each token, different ones; at most 32 */
  int32_t own;     /* divides experts */
  /* 0: the largest logits, of equals the first. 1: slot i goes to expert i %
   * experts whatever the logits, so that counts are known and alike. */
  int32_t balanced;
} PwRoute;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PIPEWRIGHT_KERNELS_OPERATIONS_H_ */
