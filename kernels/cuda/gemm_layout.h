// How the three passes of a linear layer are asked of cuBLASLt, which is
// column-major: a row-major [r, c] matrix is a column-major c x r one with
// leading dimension c. No CUDA in here, so that tests check it on any machine.
#ifndef PIPEWRIGHT_KERNELS_CUDA_GEMM_LAYOUT_H_
#define PIPEWRIGHT_KERNELS_CUDA_GEMM_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/kernels.h"

namespace pipewright::cuda {

// A column-major matrix as it lies in memory.
struct GemmMatrix {
  int64_t rows;
  int64_t columns;
  int64_t leading;
  bool transposed;  // op: used as its transpose
};

// C[m, n] = op(A) op(B), in column-major words.
struct GemmLayout {
  int64_t m;
  int64_t n;
  int64_t k;
  GemmMatrix a;
  GemmMatrix b;
  GemmMatrix c;
  // cuBLASLt's A is the second operand of PwKernels.gemm (b), its B the first
  // (a), in the passes F and B; the other way round in W.
  bool swapped;
  bool accumulate;  // beta 1, C in fp32
  // fp8 comes as "TN" only before Blackwell (cuBLAS manual, "cublasLtMatmul",
  // fp8 requirements): these operands are transposed in memory first, unless
  // they come so, and a and b above describe them transposed.
  bool copy_a;
  bool copy_b;
};

inline GemmLayout LayoutOf(const PwGemm& gemm) {
  const int64_t tokens = gemm.tokens;
  const int64_t inputs = gemm.inputs;
  const int64_t outputs = gemm.outputs;
  GemmLayout layout{};
  switch (gemm.pass) {
    case PW_GEMM_FORWARD:
      layout = {outputs,
                tokens,
                inputs,
                {inputs, outputs, inputs, true},
                {inputs, tokens, inputs, false},
                {outputs, tokens, outputs, false},
                true,
                false,
                false,
                false};
      break;
    case PW_GEMM_BACKWARD_INPUT:
      layout = {inputs,
                tokens,
                outputs,
                {inputs, outputs, inputs, false},
                {outputs, tokens, outputs, false},
                {inputs, tokens, inputs, false},
                true,
                false,
                false,
                false};
      break;
    case PW_GEMM_BACKWARD_WEIGHT:
      layout = {inputs,
                outputs,
                tokens,
                {inputs, tokens, inputs, false},
                {outputs, tokens, outputs, true},
                {inputs, outputs, inputs, false},
                false,
                true,
                false,
                false};
      break;
  }
  if (gemm.type == PW_FP8) {
    // op(A) must be a transpose and op(B) none: what is not gets turned.
    if (!layout.a.transposed) {
      layout.copy_a = gemm.transposed == 0;
      layout.a = {layout.k, layout.m, layout.k, true};
    }
    if (layout.b.transposed) {
      layout.copy_b = gemm.transposed == 0;
      layout.b = {layout.k, layout.n, layout.k, false};
    }
  }
  return layout;
}

// What decides which algorithm fits: the plan of one key is asked for once. The
// places of scales and of the bias are those of a call.
struct GemmKey {
  PwGemm gemm;
  bool bias;
  uint32_t a_alignment;
  uint32_t b_alignment;
  uint32_t c_alignment;

  // Which operands have a scale: an algorithm may be for those alone. The
  // pointers may differ from call to call.
  int64_t Scales() const {
    return (gemm.a_scale != nullptr ? 1 : 0) |
           (gemm.b_scale != nullptr ? 2 : 0);
  }

  friend bool operator==(const GemmKey& left, const GemmKey& right) {
    return left.gemm.pass == right.gemm.pass &&
           left.gemm.type == right.gemm.type &&
           left.gemm.tokens == right.gemm.tokens &&
           left.gemm.inputs == right.gemm.inputs &&
           left.gemm.outputs == right.gemm.outputs &&
           left.gemm.dy_e5m2 == right.gemm.dy_e5m2 &&
           left.gemm.transposed == right.gemm.transposed &&
           left.gemm.fp32_output == right.gemm.fp32_output &&
           left.Scales() == right.Scales() && left.bias == right.bias &&
           left.a_alignment == right.a_alignment &&
           left.b_alignment == right.b_alignment &&
           left.c_alignment == right.c_alignment;
  }
};

struct GemmKeyHash {
  size_t operator()(const GemmKey& key) const {
    size_t hash = 0;
    for (const int64_t part :
         {static_cast<int64_t>(key.gemm.pass),
          static_cast<int64_t>(key.gemm.type), key.gemm.tokens, key.gemm.inputs,
          key.gemm.outputs, static_cast<int64_t>(key.gemm.dy_e5m2),
          static_cast<int64_t>(key.gemm.transposed),
          static_cast<int64_t>(key.gemm.fp32_output), key.Scales(),
          static_cast<int64_t>(key.bias), static_cast<int64_t>(key.a_alignment),
          static_cast<int64_t>(key.b_alignment),
          static_cast<int64_t>(key.c_alignment)}) {
      // boost::hash_combine's mixing, with 2^64 over the golden ratio.
      hash ^= std::hash<int64_t>()(part) + 0x9e3779b97f4a7c15ull + (hash << 6) +
              (hash >> 2);
    }
    return hash;
  }
};

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_GEMM_LAYOUT_H_
