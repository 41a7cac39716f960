// fp8: quantising to the nearest, products of what was stored.
#include <math.h>

#include <algorithm>

#include "tests/support/kernel_checks.h"
#include "tests/support/kernel_fp8_format.h"

namespace pipewright {
namespace {

// The nearest of all numbers, ties to the one that ends in a 0.
uint8_t Nearest(const Fp8Format& format, double value) {
  int nearest = 0;
  for (int code = 0; code < 0x7f; ++code) {
    const double here = fabs(ValueOf(format, code) - fabs(value));
    const double best = fabs(ValueOf(format, nearest) - fabs(value));
    if (here < best || (here == best && code % 2 == 0)) nearest = code;
  }
  return signbit(value) ? nearest | 0x80 : nearest;
}

float FactorOf(const Fp8Format& format, const Values& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, fabs(value));
  return largest == 0 ? 1 : format.largest / static_cast<float>(largest);
}

void RunQuantize(KernelRig* rig, KernelCompare* compare, PwType type,
                 int64_t rows, int64_t columns, const Fp8Format& format,
                 double size) {
  Values x = RandomValues(rows * columns, 7, size);
  // Some in the range where the spacing stays.
  for (size_t index = 0; index < x.size(); index += 3) x[index] *= 1e-4;
  const void* there = rig->Put(&x, type);
  const size_t count = rows * columns;
  void* along = rig->Space(count);
  void* across = rig->Space(count);
  float* scales = static_cast<float*>(rig->Space(2, PW_FP32));
  const auto run = [&](void* to, void* to_transposed, float* scale) {
    rig->Ok(
        rig->kernels()->quantize(rig->device(), nullptr, type, rows, columns,
                                 there, format.e5m2, to, to_transposed, scale),
        "quantize");
  };
  run(along, across, scales);
  const float factor = FactorOf(format, x);
  std::vector<uint8_t> want(count);
  std::vector<uint8_t> want_across(count);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const size_t index = row * columns + column;
      const float value = static_cast<float>(x[index]) * factor;
      want[index] = Nearest(format, value);
      want_across[column * rows + row] = want[index];
    }
  }
  compare->Bits("quantised", rig->Bytes(along, count), want);
  compare->Bits("transposed", rig->Bytes(across, count), want_across);
  rig->Fill(along, count, 0xff);
  rig->Fill(across, count, 0xff);
  run(along, nullptr, scales + 1);
  run(nullptr, across, scales + 1);
  compare->Bits("alone", rig->Bytes(along, count), want);
  compare->Bits("transposed alone", rig->Bytes(across, count), want_across);
  const double scale = 1 / factor;
  compare->Device("scales", scales, PW_FP32, {scale, scale});
}

// [rows, columns] in fp8 with `scale`; `values` become what is stored.
const void* PutFp8(KernelRig* rig, Values* values, int64_t rows,
                   int64_t columns, const Fp8Format& format, double scale,
                   bool transposed) {
  std::vector<uint8_t> codes(values->size());
  for (size_t index = 0; index < values->size(); ++index) {
    const uint8_t code = Nearest(format, (*values)[index] / scale);
    (*values)[index] = scale * ValueOf(format, code);
    const size_t place =
        transposed ? index % columns * rows + index / columns : index;
    codes[place] = code;
  }
  void* memory = rig->Space(codes.size());
  rig->Ok(rig->kernels()->copy(rig->device(), nullptr, PW_HOST_TO_DEVICE,
                               memory, codes.data(), codes.size()),
          "copy");
  rig->Ok(rig->kernels()->synchronize(rig->device(), nullptr), "synchronize");
  return memory;
}

void RunProducts(KernelRig* rig, KernelCompare* compare, PwType type,
                 bool transposed, bool biased) {
  if (type == PW_FP32) compare->WithFp8Cores(kFp8PartialSums);
  constexpr int64_t kTokens = 144;
  constexpr int64_t kInputs = 272;
  constexpr int64_t kOutputs = 64;
  Values x = RandomValues(kTokens * kInputs, 1, 4);
  Values w = RandomValues(kOutputs * kInputs, 2, 2);
  Values dy = RandomValues(kTokens * kOutputs, 3, 20);
  Values bias = RandomValues(kOutputs, 4, 8);
  Values dw = RandomValues(kOutputs * kInputs, 5, 2);
  // No two the same, so that none can stand for another.
  Values scales = {0.5, 0.25, 8};
  const void* x_there =
      PutFp8(rig, &x, kTokens, kInputs, kE4m3, scales[0], false);
  Values x_again = x;
  const void* x_turned =
      PutFp8(rig, &x_again, kTokens, kInputs, kE4m3, scales[0], transposed);
  const void* w_there =
      PutFp8(rig, &w, kOutputs, kInputs, kE4m3, scales[1], false);
  Values w_again = w;
  const void* w_turned =
      PutFp8(rig, &w_again, kOutputs, kInputs, kE4m3, scales[1], transposed);
  const void* dy_there =
      PutFp8(rig, &dy, kTokens, kOutputs, kE5m2, scales[2], false);
  Values dy_again = dy;
  const void* dy_turned =
      PutFp8(rig, &dy_again, kTokens, kOutputs, kE5m2, scales[2], transposed);
  constexpr int64_t kStride = PW_SCALE_ALIGNMENT / sizeof(float);
  Values spaced(3 * kStride, NAN);
  for (int index = 0; index < 3; ++index) {
    spaced[index * kStride] = scales[index];
  }
  const auto* scale = static_cast<const float*>(rig->Put(&spaced, PW_FP32));
  const void* bias_there = rig->Put(&bias, type);
  void* y = rig->Space(kTokens * kOutputs, type);
  void* dx = rig->Space(kTokens * kInputs, type);
  void* dw_there = rig->Put(&dw, PW_FP32);
  const auto run = [&](PwGemmPass pass, const void* a, const float* a_scale,
                       const void* b, const float* b_scale, const void* plus,
                       void* c) {
    PwGemm gemm = {pass, PW_FP8, kTokens, kInputs, kOutputs};
    gemm.dy_e5m2 = 1;
    gemm.transposed = transposed;
    gemm.fp32_output = type == PW_FP32;
    gemm.a_scale = a_scale;
    gemm.b_scale = b_scale;
    rig->Ok(rig->kernels()->gemm(rig->device(), nullptr, &gemm, a, b, plus, c),
            "fp8 gemm");
  };
  const float* w_scale = scale + kStride;
  const float* dy_scale = scale + 2 * kStride;
  run(PW_GEMM_FORWARD, x_there, scale, w_there, w_scale,
      biased ? bias_there : nullptr, y);
  run(PW_GEMM_BACKWARD_INPUT, dy_there, dy_scale, w_turned, w_scale, nullptr,
      dx);
  run(PW_GEMM_BACKWARD_WEIGHT, x_turned, scale, dy_turned, dy_scale, nullptr,
      dw_there);
  compare->Device(
      "y", y, type,
      RefLinear(x, w, biased ? bias : Values(), kTokens, kInputs, kOutputs));
  compare->Device("dx", dx, type,
                  RefLinearInput(dy, w, kTokens, kInputs, kOutputs));
  Values want = RefLinearWeight(x, dy, kTokens, kInputs, kOutputs);
  for (size_t index = 0; index < want.size(); ++index) want[index] += dw[index];
  compare->Device("dw", dw_there, PW_FP32, want);
}

}  // namespace

std::vector<KernelCheck> Fp8Checks() {
  std::vector<KernelCheck> checks;
  for (const Fp8Format& format : {kE4m3, kE5m2}) {
    const std::string name = format.e5m2 ? "quantize e5m2" : "quantize e4m3";
    const int64_t shapes[][2] = {
        {1, 1}, {16, 16}, {37, 53}, {80, 208}, {272, 144}};
    for (const int64_t(&shape)[2] : shapes) {
      const int64_t rows = shape[0];
      const int64_t columns = shape[1];
      checks.push_back(MakeKernelCheck(
          name + ShapeText({rows, columns}), false, false,
          [=](KernelRig* rig, KernelCompare* compare, PwType type) {
            RunQuantize(rig, compare, type, rows, columns, format, 3);
          }));
    }
    // All 0; so small that the factor would be none.
    for (const double size : {0.0, 1e-40}) {
      checks.push_back(MakeKernelCheck(
          name + (size == 0 ? " zeros" : " tiny"), false, false,
          [=](KernelRig* rig, KernelCompare* compare, PwType type) {
            Values x(64, size);
            const void* there = rig->Put(&x, type);
            void* to = rig->Space(size_t{64});
            float* scale = static_cast<float*>(rig->Space(1, PW_FP32));
            rig->Ok(rig->kernels()->quantize(rig->device(), nullptr, type, 4,
                                             16, there, format.e5m2, to,
                                             nullptr, scale),
                    "quantize");
            const double factor = rig->Get(scale, 1, PW_FP32)[0];
            if (size == 0) compare->Tensor("scale", {factor}, {1});
            // What is left beyond half a spacing.
            Values beyond;
            for (const uint8_t code : rig->Bytes(to, 64)) {
              const double got = factor * ValueOf(format, code);
              beyond.push_back(
                  size == 0 ? got
                            : std::max(0.0, fabs(got / x[0] - 1) - 0.125));
              if (isnan(got)) beyond.back() = NAN;
            }
            compare->Tensor("values", beyond, Values(beyond.size(), 0.0));
          }));
    }
  }
  for (const bool transposed : {false, true}) {
    for (const bool biased : {false, true}) {
      checks.push_back(MakeKernelCheck(
          std::string("fp8 products") + (transposed ? " transposed" : "") +
              (biased ? " and a bias" : ""),
          false, true,
          [=](KernelRig* rig, KernelCompare* compare, PwType type) {
            RunProducts(rig, compare, type, transposed, biased);
          },
          2));
    }
  }
  return checks;
}

}  // namespace pipewright
