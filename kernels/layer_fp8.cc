// The linear layers of a layer in fp8: e4m3 for inputs and weights, e5m2 for
// gradients (arXiv 2209.05433, section 3), a scale for each tensor from its
// current values.
#include "kernels/layer_fp8.h"

#include "kernels/layer_pass.h"

namespace pipewright {
namespace {

constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// What all three passes have in common.
PwGemm GemmOf(const PwModel& model, const Fp8Matrix& matrix, int64_t tokens,
              PwGemmPass pass) {
  PwGemm gemm = {pass, PW_FP8, tokens, matrix.inputs, matrix.outputs};
  gemm.dy_e5m2 = pass == PW_GEMM_FORWARD ? 0 : 1;
  gemm.transposed = 1;
  gemm.fp32_output = model.type == PW_FP32 ? 1 : 0;
  return gemm;
}

const float* ScaleAt(const void* place) {
  return static_cast<const float*>(place);
}

}  // namespace

Fp8Weights Fp8WeightsOf(const PwModel& model) {
  const PartShape shape = ShapeOf(model, PwWork{1, 1, 0, 1});
  const PartWeights weights = WeightsOf(model, PW_LAYER, nullptr, nullptr);
  Fp8Weights out{
      {{weights.qkv, weights.qkv_bias, shape.qkv, shape.hidden},
       {weights.out, weights.out_bias, shape.hidden, shape.attention},
       {weights.up, weights.up_bias, shape.up, shape.hidden},
       {weights.down, weights.down_bias, shape.hidden, shape.ffn}}};
  const size_t scales = Aligned(kFp8Matrices * PW_SCALE_ALIGNMENT);
  out.bytes = scales;
  size_t scale = 0;
  for (Fp8Matrix& matrix : out.matrices) {
    const size_t bytes = Aligned(matrix.outputs * matrix.inputs);
    matrix.scale = scale;
    scale += PW_SCALE_ALIGNMENT;
    matrix.rows = out.bytes;
    matrix.columns = out.bytes + bytes;
    out.bytes += 2 * bytes;
  }
  return out;
}

int Fp8IndexOf(const PwModel& model, PwPart part, const PartWeights& weights,
               int64_t weight) {
  if (!model.fp8_linear || part != PW_LAYER) return -1;
  return weight == weights.qkv    ? 0
         : weight == weights.out  ? 1
         : weight == weights.up   ? 2
         : weight == weights.down ? 3
                                  : -1;
}

Fp8Kept Fp8KeptOf(const PartLayout& layout, const Fp8Weights& weights,
                  int index) {
  const size_t inputs[] = {layout.inputs.normal1, layout.inputs.attention,
                           layout.inputs.normal2, layout.inputs.active};
  const size_t grads[] = {layout.grads.qkv, layout.grads.out, layout.grads.wide,
                          layout.grads.down};
  const size_t scale = index * PW_SCALE_ALIGNMENT;
  Fp8Kept kept = {inputs[index], layout.inputs.scales + scale, grads[index],
                  layout.grads.scales + scale, layout.grads.biases};
  for (int before = 0; before < index; ++before) {
    kept.bias += weights.matrices[before].outputs * sizeof(float);
  }
  return kept;
}

PwStatus Pass::Fp8Forward(int index, const void* x, void* y) {
  const Fp8Weights weights = Fp8WeightsOf(model_);
  const Fp8Matrix& matrix = weights.matrices[index];
  const Fp8Kept kept = Fp8KeptOf(layout_, weights, index);
  void* quantized = Workspace(layout_.workspace.quantized);
  float* scale = reinterpret_cast<float*>(Inputs(kept.x_scale));
  PW_RETURN_IF_ERROR(kernels_.quantize(device_, stream_, model_.type,
                                       shape_.tokens, matrix.inputs, x, 0,
                                       quantized, Inputs(kept.x), scale));
  PwGemm gemm = GemmOf(model_, matrix, shape_.tokens, PW_GEMM_FORWARD);
  gemm.a_scale = scale;
  gemm.b_scale = ScaleAt(Quantized(matrix.scale));
  return kernels_.gemm(device_, stream_, &gemm, quantized,
                       Quantized(matrix.rows), Weight(matrix.bias), y);
}

PwStatus Pass::Fp8Input(int index, const void* dy, void* dx) {
  const Fp8Weights weights = Fp8WeightsOf(model_);
  const Fp8Matrix& matrix = weights.matrices[index];
  const Fp8Kept kept = Fp8KeptOf(layout_, weights, index);
  void* quantized = Workspace(layout_.workspace.quantized);
  float* scale = reinterpret_cast<float*>(Grads(kept.dy_scale));
  if (matrix.bias >= 0) {
    float* sums = reinterpret_cast<float*>(Grads(kept.bias));
    PW_RETURN_IF_ERROR(
        kernels_.zero(device_, stream_, sums, matrix.outputs * sizeof(float)));
    PW_RETURN_IF_ERROR(kernels_.bias_backward(device_, stream_, model_.type,
                                              shape_.tokens, matrix.outputs, dy,
                                              sums));
  }
  PW_RETURN_IF_ERROR(kernels_.quantize(device_, stream_, model_.type,
                                       shape_.tokens, matrix.outputs, dy, 1,
                                       quantized, Grads(kept.dy), scale));
  PwGemm gemm = GemmOf(model_, matrix, shape_.tokens, PW_GEMM_BACKWARD_INPUT);
  gemm.a_scale = scale;
  gemm.b_scale = ScaleAt(Quantized(matrix.scale));
  return kernels_.gemm(device_, stream_, &gemm, quantized,
                       Quantized(matrix.columns), nullptr, dx);
}

PwStatus Pass::Fp8Weight(int index) {
  const Fp8Weights weights = Fp8WeightsOf(model_);
  const Fp8Matrix& matrix = weights.matrices[index];
  const Fp8Kept kept = Fp8KeptOf(layout_, weights, index);
  PwGemm gemm = GemmOf(model_, matrix, shape_.tokens, PW_GEMM_BACKWARD_WEIGHT);
  gemm.a_scale = ScaleAt(Inputs(kept.x_scale));
  gemm.b_scale = ScaleAt(Grads(kept.dy_scale));
  PW_RETURN_IF_ERROR(kernels_.gemm(device_, stream_, &gemm, Inputs(kept.x),
                                   Grads(kept.dy), nullptr,
                                   Gradient(matrix.weight)));
  if (matrix.bias < 0) return PW_OK;
  return kernels_.accumulate(device_, stream_, matrix.outputs,
                             ScaleAt(Grads(kept.bias)), Gradient(matrix.bias));
}

}  // namespace pipewright

PwStatus pw_quantize_weights(const PwKernels* kernels, PwDevice* device,
                             PwStream* stream, const PwModel* model,
                             PwPart part, const void* weights,
                             void* quantized) {
  using namespace pipewright;
  if (!model->fp8_linear || part != PW_LAYER) return PW_OK;
  const Fp8Weights copies = Fp8WeightsOf(*model);
  char* to = static_cast<char*>(quantized);
  for (const Fp8Matrix& matrix : copies.matrices) {
    const char* from = static_cast<const char*>(weights) +
                       matrix.weight * TypeSize(model->type);
    PW_RETURN_IF_ERROR(kernels->quantize(
        device, stream, model->type, matrix.outputs, matrix.inputs, from, 0,
        to + matrix.rows, to + matrix.columns,
        reinterpret_cast<float*>(to + matrix.scale)));
  }
  return PW_OK;
}
