// How the products of all experts are asked of cuBLAS in one call
// (cublasGemmGroupedBatchedEx): a group of one product for each expert that
// has tokens. No CUDA in here, so that tests check it on any machine.
#ifndef PIPEWRIGHT_KERNELS_CUDA_GROUPED_LAYOUT_H_
#define PIPEWRIGHT_KERNELS_CUDA_GROUPED_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "kernels/cuda/gemm_layout.h"
#include "kernels/kernels.h"

namespace pipewright::cuda {

// Where an expert's operand lies behind its pointer: so many bytes for each
// token and for each expert before.
struct OperandStep {
  int64_t per_token;
  int64_t per_expert;

  int64_t Bytes(int64_t tokens_before, int64_t experts_before) const {
    return tokens_before * per_token + experts_before * per_expert;
  }
};

// Steps of a, b and c of PwKernels.grouped_gemm.
struct GroupSteps {
  OperandStep a, b, c;
};

inline GroupSteps StepsOf(const PwGemm& gemm) {
  const int64_t operand = gemm.type == PW_FP32  ? 4
                          : gemm.type == PW_FP8 ? 1
                                                : 2;
  const int64_t result =
      gemm.type == PW_FP32 || (gemm.type == PW_FP8 && gemm.fp32_output) ? 4 : 2;
  const int64_t matrix = gemm.inputs * gemm.outputs;
  switch (gemm.pass) {
    case PW_GEMM_FORWARD:
      return {{gemm.inputs * operand, 0},
              {0, matrix * operand},
              {gemm.outputs * result, 0}};
    case PW_GEMM_BACKWARD_INPUT:
      return {{gemm.outputs * operand, 0},
              {0, matrix * operand},
              {gemm.inputs * result, 0}};
    case PW_GEMM_BACKWARD_WEIGHT:
      break;
  }
  // The gradient is fp32.
  return {
      {gemm.inputs * operand, 0}, {gemm.outputs * operand, 0}, {0, matrix * 4}};
}

// Column-major sizes and leading dimensions of each group, and which expert it
// is. cuBLAS' A is b of grouped_gemm, its B is a, where `swapped`
// (gemm_layout.h).
struct GroupedLayout {
  bool swapped = false;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  std::vector<int64_t> m, n, k;
  std::vector<int64_t> a_leading, b_leading, c_leading;
  std::vector<int32_t> expert;
  std::vector<int64_t> tokens_before;

  int32_t groups() const { return static_cast<int32_t>(m.size()); }
};

// An expert without tokens has nothing to compute in any pass and gets no
// group: the weight pass adds to what is there.
inline GroupedLayout GroupedLayoutOf(const PwGemm& gemm, int32_t experts,
                                     const int64_t* tokens_of) {
  GroupedLayout layout;
  const GemmLayout kind = LayoutOf(gemm);
  layout.swapped = kind.swapped;
  layout.transpose_a = kind.a.transposed;
  layout.transpose_b = kind.b.transposed;
  layout.accumulate = kind.accumulate;
  int64_t before = 0;
  for (int32_t expert = 0; expert < experts; ++expert) {
    PwGemm one = gemm;
    one.tokens = tokens_of[expert];
    if (one.tokens == 0) continue;
    const GemmLayout own = LayoutOf(one);
    layout.m.push_back(own.m);
    layout.n.push_back(own.n);
    layout.k.push_back(own.k);
    layout.a_leading.push_back(own.a.leading);
    layout.b_leading.push_back(own.b.leading);
    layout.c_leading.push_back(own.c.leading);
    layout.expert.push_back(expert);
    layout.tokens_before.push_back(before);
    before += one.tokens;
  }
  return layout;
}

// What one call does: fp32 throughout, or bf16 with a bf16 result (cuBLAS
// manual, "cublasGemmGroupedBatchedEx": A, B and C are of one type). Neither
// fp8 nor a bf16 weight pass, whose gradient is fp32.
inline bool InOneCall(const PwGemm& gemm) {
  return gemm.type == PW_FP32 ||
         (gemm.type == PW_BF16 && gemm.pass != PW_GEMM_BACKWARD_WEIGHT);
}

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_GROUPED_LAYOUT_H_
