// How the products of all experts are asked of cuBLAS: what the call would
// compute, done by hand.
#include "kernels/cuda/grouped_layout.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/support/kernel_checks.h"

namespace pipewright::cuda::grouped_layout_test {
namespace {

const std::vector<int64_t> kTokensOf = {5, 0, 17, 0, 1};
constexpr int64_t kTokens = 23;
constexpr int64_t kInputs = 6;
constexpr int64_t kOutputs = 10;
constexpr int32_t kExperts = 5;

float At(const float* matrix, bool transposed, int64_t leading, int64_t row,
         int64_t column) {
  return transposed ? matrix[column + row * leading]
                    : matrix[row + column * leading];
}

// cublasGemmGroupedBatchedEx, column-major, a product a group.
void Call(const PwGemm& gemm, const GroupedLayout& layout,
          const std::vector<float>& a, const std::vector<float>& b,
          std::vector<float>* c) {
  const GroupSteps steps = StepsOf(gemm);
  const auto place = [&](const std::vector<float>& operand,
                         const OperandStep& step, size_t group) {
    return operand.data() +
           step.Bytes(layout.tokens_before[group], layout.expert[group]) / 4;
  };
  for (size_t group = 0; group < layout.m.size(); ++group) {
    const float* first = place(a, steps.a, group);
    const float* second = place(b, steps.b, group);
    const float* left = layout.swapped ? second : first;
    const float* right = layout.swapped ? first : second;
    float* to = const_cast<float*>(place(*c, steps.c, group));
    for (int64_t row = 0; row < layout.m[group]; ++row) {
      for (int64_t column = 0; column < layout.n[group]; ++column) {
        double sum = 0;
        for (int64_t depth = 0; depth < layout.k[group]; ++depth) {
          sum += At(left, layout.transpose_a, layout.a_leading[group], row,
                    depth) *
                 At(right, layout.transpose_b, layout.b_leading[group], depth,
                    column);
        }
        float& value = to[row + column * layout.c_leading[group]];
        value = static_cast<float>(sum + (layout.accumulate ? value : 0));
      }
    }
  }
}

std::vector<float> Numbers(int64_t count, uint64_t seed) {
  const Values drawn = RandomValues(count, seed, 1);
  return std::vector<float>(drawn.begin(), drawn.end());
}

TEST_CASE("kernels: one call does every expert's products", "[kernels]") {
  const PwKernels* cpu = pw_cpu_kernels();
  PwDevice* device = nullptr;
  REQUIRE(cpu->open(0, &device) == PW_OK);
  const int64_t matrices = kExperts * kInputs * kOutputs;
  const std::vector<float> x = Numbers(kTokens * kInputs, 1);
  const std::vector<float> w = Numbers(matrices, 2);
  const std::vector<float> dy = Numbers(kTokens * kOutputs, 3);
  const auto check = [&](PwGemmPass pass, const std::vector<float>& a,
                         const std::vector<float>& b, int64_t results) {
    const PwGemm gemm = {pass, PW_FP32, kTokens, kInputs, kOutputs};
    std::vector<float> got = Numbers(results, 4);
    std::vector<float> want = got;
    const GroupedLayout layout =
        GroupedLayoutOf(gemm, kExperts, kTokensOf.data());
    CHECK(layout.groups() == 3);
    CHECK(layout.expert == std::vector<int32_t>{0, 2, 4});
    Call(gemm, layout, a, b, &got);
    REQUIRE(cpu->grouped_gemm(device, nullptr, &gemm, kExperts,
                              kTokensOf.data(), a.data(), b.data(),
                              want.data()) == PW_OK);
    for (size_t index = 0; index < want.size(); ++index) {
      INFO("pass " << pass << " element " << index);
      CHECK(got[index] == Approx(want[index]).margin(1e-5));
    }
  };
  check(PW_GEMM_FORWARD, x, w, kTokens * kOutputs);
  check(PW_GEMM_BACKWARD_INPUT, dy, w, kTokens * kInputs);
  check(PW_GEMM_BACKWARD_WEIGHT, x, dy, matrices);
  cpu->close(device);
}

TEST_CASE("kernels: where experts lie depends on the type", "[kernels]") {
  PwGemm gemm = {PW_GEMM_FORWARD, PW_BF16, kTokens, kInputs, kOutputs};
  CHECK(StepsOf(gemm).a.Bytes(3, 1) == 3 * kInputs * 2);
  CHECK(StepsOf(gemm).b.Bytes(3, 2) == 2 * kInputs * kOutputs * 2);
  CHECK(StepsOf(gemm).c.Bytes(3, 1) == 3 * kOutputs * 2);
  gemm = {PW_GEMM_BACKWARD_WEIGHT, PW_FP8, kTokens, kInputs, kOutputs};
  CHECK(StepsOf(gemm).a.Bytes(3, 1) == 3 * kInputs);
  CHECK(StepsOf(gemm).b.Bytes(3, 1) == 3 * kOutputs);
  CHECK(StepsOf(gemm).c.Bytes(3, 2) == 2 * kInputs * kOutputs * 4);
  gemm = {PW_GEMM_BACKWARD_INPUT, PW_FP8, kTokens, kInputs, kOutputs};
  // y and dx of fp8 operands are bf16.
  CHECK(StepsOf(gemm).a.Bytes(3, 1) == 3 * kOutputs);
  CHECK(StepsOf(gemm).c.Bytes(3, 1) == 3 * kInputs * 2);
}

TEST_CASE("kernels: one call takes what cuBLAS has", "[kernels]") {
  const auto takes = [](PwGemmPass pass, PwType type) {
    return InOneCall({pass, type, kTokens, kInputs, kOutputs});
  };
  CHECK(takes(PW_GEMM_FORWARD, PW_BF16));
  CHECK(takes(PW_GEMM_BACKWARD_INPUT, PW_BF16));
  CHECK(!takes(PW_GEMM_BACKWARD_WEIGHT, PW_BF16));
  CHECK(takes(PW_GEMM_BACKWARD_WEIGHT, PW_FP32));
  CHECK(!takes(PW_GEMM_FORWARD, PW_FP8));
}

}  // namespace
}  // namespace pipewright::cuda::grouped_layout_test
