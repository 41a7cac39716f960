// fp8 on a processor that has none: numbers are rounded as a GPU rounds them,
// products are sums in fp32. For right results, not for times.
#include "kernels/cpu/fp8.h"

#include <float.h>
#include <math.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cpu/device.h"

namespace pipewright {
namespace {

constexpr float kLargestE4m3 = 448;
constexpr float kLargestE5m2 = 57344;

const std::array<float, 256>& ValuesOf(bool e5m2) {
  static const auto make = [](float (*value)(uint8_t)) {
    std::array<float, 256> values;
    for (int code = 0; code < 256; ++code) values[code] = value(code);
    return values;
  };
  static const std::array<float, 256> four = make(FromFp8);
  static const std::array<float, 256> five = make(FromE5m2);
  return e5m2 ? five : four;
}

const float* Widen(const void* codes, int64_t count, bool e5m2,
                   std::vector<float>* to) {
  const std::array<float, 256>& values = ValuesOf(e5m2);
  const auto* from = static_cast<const uint8_t*>(codes);
  to->resize(count);
  std::transform(from, from + count, to->begin(),
                 [&](uint8_t code) { return values[code]; });
  return to->data();
}

PwStatus Quantize(PwDevice* device, PwStream*, PwType type, int64_t rows,
                  int64_t columns, const void* x, int32_t e5m2, void* to,
                  void* to_transposed, float* scale) {
  const TypedLoops* loops = LoopsFor("quantize", device, type);
  if (loops == nullptr) return PW_INVALID;
  const PwStatus status =
      CheckSizes("quantize", {{"rows", rows}, {"columns", columns}});
  if (status != PW_OK) return status;
  std::vector<float>& values = device->fp8[0];
  values.resize(rows * columns);
  loops->to_float(rows, columns, x, columns, values.data(), columns);
  float largest = 0;
  for (const float value : values) {
    // False for a NaN.
    if (fabsf(value) > largest) largest = fabsf(value);
  }
  float factor = 1;
  if (largest > 0) {
    factor = std::min((e5m2 ? kLargestE5m2 : kLargestE4m3) / largest, FLT_MAX);
  }
  *scale = 1 / factor;
  auto* along = static_cast<uint8_t*>(to);
  auto* across = static_cast<uint8_t*>(to_transposed);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const float value = values[row * columns + column] * factor;
      const uint8_t code = e5m2 ? ToE5m2(value) : ToFp8(value);
      if (along != nullptr) along[row * columns + column] = code;
      if (across != nullptr) across[column * rows + row] = code;
    }
  }
  return PW_OK;
}

}  // namespace

PwStatus Fp8Gemm(PwDevice* device, const PwGemm& gemm, const void* a,
                 const void* b, const void* bias, void* c) {
  const int64_t tokens = gemm.tokens;
  const int64_t inputs = gemm.inputs;
  const int64_t outputs = gemm.outputs;
  const bool forward = gemm.pass == PW_GEMM_FORWARD;
  const bool weight = gemm.pass == PW_GEMM_BACKWARD_WEIGHT;
  const bool turned = gemm.transposed != 0;
  const bool e5m2 = gemm.dy_e5m2 != 0;
  const float* left = Widen(a, tokens * (forward || weight ? inputs : outputs),
                            e5m2 && !forward && !weight, &device->fp8[0]);
  const float* right = Widen(b, weight ? tokens * outputs : inputs * outputs,
                             e5m2 && weight, &device->fp8[1]);
  const float scale = (gemm.a_scale == nullptr ? 1 : *gemm.a_scale) *
                      (gemm.b_scale == nullptr ? 1 : *gemm.b_scale);
  device->implementation = "fp8 by " + SgemmName(*device);
  if (weight) {
    return Sgemm(
        device,
        {!turned, turned, outputs, inputs, tokens, scale,
         turned ? tokens : outputs, turned ? tokens : inputs, 1.0f, inputs},
        right, left, static_cast<float*>(c));
  }
  const int64_t columns = forward ? outputs : inputs;
  float* to = static_cast<float*>(c);
  if (!gemm.fp32_output) {
    device->fp8[2].resize(tokens * columns);
    to = device->fp8[2].data();
  }
  if (bias != nullptr) {
    const TypedLoops& loops =
        gemm.fp32_output ? device->loops.fp32 : device->loops.bf16;
    std::vector<float> wide(outputs);
    loops.to_float(1, outputs, bias, outputs, wide.data(), outputs);
    device->loops.fp32.bias_rows(tokens, outputs, wide.data(), to);
  }
  const float beta = bias == nullptr ? 0.0f : 1.0f;
  const PwStatus status =
      forward ? Sgemm(device,
                      {false, true, tokens, outputs, inputs, scale, inputs,
                       inputs, beta, outputs},
                      left, right, to)
              : Sgemm(device,
                      {false, turned, tokens, inputs, outputs, scale, outputs,
                       turned ? outputs : inputs, beta, inputs},
                      left, right, to);
  if (status == PW_OK && !gemm.fp32_output) {
    device->loops.bf16.from_float(tokens, columns, to, columns, c, columns);
  }
  return status;
}

void AddFp8(PwKernels* kernels) { kernels->quantize = Quantize; }

}  // namespace pipewright
