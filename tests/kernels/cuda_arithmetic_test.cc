// What of the CUDA backend is plain arithmetic: number formats, the geometry
// of causal attention, and how GEMMs are asked of cuBLASLt. The kernels run
// these same functions.
#include "kernels/cuda/arithmetic.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/fp8.h"
#include "kernels/cuda/gemm_layout.h"
#include "kernels/random.h"

namespace pipewright::cuda::cuda_arithmetic_test {
namespace {

TEST_CASE("kernels: fp8 of the CUDA backend reads back", "[kernels]") {
  for (int code = 0; code < 256; ++code) {
    const uint8_t bits = static_cast<uint8_t>(code);
    const float value = FloatOfFp8(bits);
    if ((code & 0x7f) == 0x7f) {
      CHECK(std::isnan(value));
      CHECK(std::isnan(FloatOfFp8(Fp8OfFloat(value))));
      continue;
    }
    INFO("code " << code << " value " << value);
    CHECK(value == FromFp8(bits));
    CHECK(Fp8OfFloat(value) == bits);
  }
}

TEST_CASE("kernels: fp8 rounds to the nearest, ties to even", "[kernels]") {
  // Between each two neighbours: a little below, at, and above the middle.
  for (int code = 0; code < 0x7e; ++code) {
    const uint8_t low = static_cast<uint8_t>(code);
    const uint8_t high = static_cast<uint8_t>(code + 1);
    const float middle = 0.5f * (FloatOfFp8(low) + FloatOfFp8(high));
    const float infinity = std::numeric_limits<float>::infinity();
    INFO("code " << code);
    CHECK(Fp8OfFloat(std::nextafter(middle, -infinity)) == low);
    CHECK(Fp8OfFloat(std::nextafter(middle, infinity)) == high);
    CHECK(Fp8OfFloat(middle) == (code % 2 == 0 ? low : high));
    CHECK(Fp8OfFloat(-middle) == ((code % 2 == 0 ? low : high) | 0x80));
  }
  CHECK(Fp8OfFloat(449.0f) == 0x7e);
  CHECK(Fp8OfFloat(std::numeric_limits<float>::infinity()) == 0x7e);
  CHECK(Fp8OfFloat(-1e30f) == 0xfe);
}

TEST_CASE("kernels: e5m2 reads back and rounds to the nearest", "[kernels]") {
  CHECK(FromE5m2(0x3c) == 1);
  CHECK(FromE5m2(0x7b) == 57344);
  CHECK(FromE5m2(0x01) == std::ldexp(1.0f, -16));
  CHECK(FromE5m2(0xfc) == -std::numeric_limits<float>::infinity());
  for (int code = 0; code < 0x7b; ++code) {
    const auto low = static_cast<uint8_t>(code);
    const auto high = static_cast<uint8_t>(code + 1);
    INFO("code " << code);
    CHECK(FromE5m2(low) < FromE5m2(high));
    CHECK(ToE5m2(FromE5m2(low)) == low);
    const float middle = 0.5f * (FromE5m2(low) + FromE5m2(high));
    CHECK(ToE5m2(std::nextafter(middle, 0.0f)) == low);
    CHECK(ToE5m2(std::nextafter(middle, 1e30f)) == high);
    CHECK(ToE5m2(-middle) == ((code % 2 == 0 ? low : high) | 0x80));
  }
  CHECK(ToE5m2(1e30f) == 0x7b);
  CHECK(std::isnan(FromE5m2(ToE5m2(NAN))));
}

// One plan must not serve another format of gradients, nor products without
// scales; where the scales lie is no part.
TEST_CASE("kernels: plans of products differ by what dy is", "[kernels]") {
  const float scales[] = {1, 1};
  GemmKey key = {
      {PW_GEMM_BACKWARD_INPUT, PW_FP8, 16, 16, 16}, false, 16, 16, 16};
  GemmKey other = key;
  other.gemm.a_scale = &scales[0];
  CHECK_FALSE(key == other);
  CHECK(GemmKeyHash()(key) != GemmKeyHash()(other));
  key.gemm.a_scale = &scales[1];
  CHECK(key == other);
  CHECK(GemmKeyHash()(key) == GemmKeyHash()(other));
  other.gemm.dy_e5m2 = 1;
  CHECK_FALSE(key == other);
  CHECK(GemmKeyHash()(key) != GemmKeyHash()(other));
}

TEST_CASE("kernels: CUDA's and the CPU's fp8 and bf16 agree", "[kernels]") {
  for (uint64_t index = 0; index < 200000; ++index) {
    const float value =
        FloatOfBits(static_cast<uint32_t>(pw_random_bits(7, index) >> 32));
    if (std::isnan(value)) continue;
    INFO("value " << value);
    REQUIRE(Fp8OfFloat(value) == ToFp8(value));
    // bf16: no other upper half is nearer.
    const uint16_t half = Bf16OfFloat(value);
    const float rounded = FloatOfBits(static_cast<uint32_t>(half) << 16);
    if (!std::isfinite(rounded)) continue;
    const double error = std::abs(static_cast<double>(rounded) - value);
    for (const int step : {-1, 1}) {
      const float other = FloatOfBits(
          static_cast<uint32_t>(static_cast<uint16_t>(half + step)) << 16);
      if (!std::isfinite(other)) continue;
      REQUIRE(error <= std::abs(static_cast<double>(other) - value));
    }
  }
  CHECK(std::isnan(FloatOfBits(
      static_cast<uint32_t>(Bf16OfFloat(FloatOfBits(0x7f800001u))) << 16)));
}

TEST_CASE("kernels: causal geometry counts each pair once", "[kernels]") {
  for (const int64_t queries : {1, 5, 8}) {
    for (const int64_t keys : {8, 13}) {
      CHECK(CausalKeys(queries - 1, queries, keys) == keys);
      for (int64_t query = 0; query < queries; ++query) {
        for (int64_t key = 0; key < keys; ++key) {
          const bool by_query = key < CausalKeys(query, queries, keys);
          const bool by_key = query >= FirstCausalQuery(key, queries, keys);
          INFO("query " << query << " key " << key);
          CHECK(by_query == by_key);
        }
      }
    }
  }
}

TEST_CASE("kernels: alignment of an address", "[kernels]") {
  const auto at = [](uintptr_t address) {
    return AlignmentOf(reinterpret_cast<const void*>(address), 256);
  };
  CHECK(at(0) == 256);
  CHECK(at(4096) == 256);
  CHECK(at(4096 + 64) == 64);
  CHECK(at(4096 + 66) == 2);
  CHECK(at(4097) == 1);
  CHECK(CeilDivide(7, 4) == 2);
  CHECK(CeilDivide(8, 4) == 2);
  CHECK(RoundUp(257, 256) == 512);
}

// What cuBLASLt computes, written out: column-major C = op(A) op(B) (+ C).
std::vector<double> ColumnMajor(const GemmLayout& layout,
                                const std::vector<double>& a,
                                const std::vector<double>& b,
                                std::vector<double> c) {
  const auto at = [](const GemmMatrix& matrix, const std::vector<double>& data,
                     int64_t row, int64_t column) {
    if (matrix.transposed) std::swap(row, column);
    REQUIRE(row < matrix.rows);
    REQUIRE(column < matrix.columns);
    return data[static_cast<size_t>(row + column * matrix.leading)];
  };
  for (int64_t row = 0; row < layout.m; ++row) {
    for (int64_t column = 0; column < layout.n; ++column) {
      double sum = 0;
      for (int64_t inner = 0; inner < layout.k; ++inner) {
        sum += at(layout.a, a, row, inner) * at(layout.b, b, inner, column);
      }
      double& to = c[static_cast<size_t>(row + column * layout.c.leading)];
      to = layout.accumulate ? to + sum : sum;
    }
  }
  return c;
}

std::vector<double> Random(int64_t count, uint64_t seed) {
  std::vector<double> values;
  for (int64_t index = 0; index < count; ++index) {
    values.push_back(pw_random_value(seed, static_cast<uint64_t>(index), 1));
  }
  return values;
}

std::vector<double> Transpose(const std::vector<double>& from, int64_t rows,
                              int64_t columns) {
  std::vector<double> to(from.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      to[static_cast<size_t>(column * rows + row)] =
          from[static_cast<size_t>(row * columns + column)];
    }
  }
  return to;
}

TEST_CASE("kernels: cuBLASLt's layouts are the three passes", "[kernels]") {
  const int64_t tokens = 5;
  const int64_t inputs = 3;
  const int64_t outputs = 4;
  const std::vector<double> x = Random(tokens * inputs, 1);
  const std::vector<double> w = Random(outputs * inputs, 2);
  const std::vector<double> dy = Random(tokens * outputs, 3);
  const std::vector<double> dw = Random(outputs * inputs, 4);
  std::vector<double> want[3] = {
      std::vector<double>(static_cast<size_t>(tokens * outputs)),
      std::vector<double>(static_cast<size_t>(tokens * inputs)), dw};
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t input = 0; input < inputs; ++input) {
      for (int64_t output = 0; output < outputs; ++output) {
        const size_t at_x = static_cast<size_t>(token * inputs + input);
        const size_t at_w = static_cast<size_t>(output * inputs + input);
        const size_t at_y = static_cast<size_t>(token * outputs + output);
        want[0][at_y] += x[at_x] * w[at_w];
        want[1][at_x] += dy[at_y] * w[at_w];
        want[2][at_w] += dy[at_y] * x[at_x];
      }
    }
  }
  // The pointers of PwKernels.gemm.
  const std::vector<double>* first[3] = {&x, &dy, &x};
  const std::vector<double>* second[3] = {&w, &w, &dy};
  for (const int kind : {0, 1, 2}) {
    for (int pass = 0; pass < 3; ++pass) {
      PwGemm gemm = {static_cast<PwGemmPass>(pass),
                     kind == 0 ? PW_BF16 : PW_FP8, tokens, inputs, outputs};
      gemm.transposed = kind == 2 ? 1 : 0;
      const GemmLayout layout = LayoutOf(gemm);
      INFO("pass " << pass << " kind " << kind);
      std::vector<double> left = *first[pass];
      std::vector<double> right = *second[pass];
      // As kernels.h has it of operands that come transposed.
      if (kind == 2 && pass == 1) right = Transpose(w, outputs, inputs);
      if (kind == 2 && pass == 2) {
        left = Transpose(x, tokens, inputs);
        right = Transpose(dy, tokens, outputs);
      }
      std::vector<double> a = layout.swapped ? right : left;
      std::vector<double> b = layout.swapped ? left : right;
      // As gemm.cc does: row-major [k, m] and [k, n] become [m, k] and [n, k].
      if (layout.copy_a) a = Transpose(a, layout.k, layout.m);
      if (layout.copy_b) b = Transpose(b, layout.k, layout.n);
      if (kind > 0) {
        CHECK(layout.a.transposed);
        CHECK_FALSE(layout.b.transposed);
      }
      if (kind != 1) CHECK_FALSE((layout.copy_a || layout.copy_b));
      const std::vector<double> start =
          pass == 2 ? dw : std::vector<double>(want[pass].size(), 1e9);
      const std::vector<double> got = ColumnMajor(layout, a, b, start);
      REQUIRE(got.size() == want[pass].size());
      for (size_t index = 0; index < got.size(); ++index) {
        CHECK(got[index] == Approx(want[pass][index]).margin(1e-12));
      }
    }
  }
}

TEST_CASE("kernels: plans of different products have different keys",
          "[kernels]") {
  const GemmKey key = {
      {PW_GEMM_FORWARD, PW_BF16, 16, 32, 64}, false, 256, 256, 256};
  std::vector<GemmKey> others(10, key);
  others[0].gemm.pass = PW_GEMM_BACKWARD_INPUT;
  others[1].gemm.type = PW_FP8;
  others[2].gemm.tokens = 17;
  others[3].gemm.inputs = 33;
  others[4].gemm.outputs = 65;
  others[5].bias = true;
  others[6].a_alignment = 16;
  others[7].c_alignment = 16;
  others[8].gemm.transposed = 1;
  others[9].gemm.fp32_output = 1;
  CHECK(key == GemmKey(key));
  for (const GemmKey& other : others) {
    CHECK_FALSE(key == other);
    CHECK(GemmKeyHash()(key) != GemmKeyHash()(other));
  }
}

}  // namespace
}  // namespace pipewright::cuda::cuda_arithmetic_test
