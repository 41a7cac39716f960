#include "kernels/layer_pass.h"

#include "kernels/layer_fp8.h"

namespace pipewright {

Pass::Pass(const PwKernels* kernels, PwDevice* device, PwStream* stream,
           const PwModel* model, const PwWork* work, PwPart part,
           const PwPartMemory* memory)
    : kernels_(*kernels),
      device_(device),
      stream_(stream),
      model_(*model),
      work_(*work),
      part_(part),
      memory_(*memory),
      shape_(ShapeOf(*model, *work)),
      weights_(WeightsOf(*model, part, nullptr, nullptr)),
      layout_(LayoutOf(*kernels, device, *model, *work, part)),
      norm_(model->style == PW_GPT ? PW_LAYER_NORM : PW_RMS_NORM),
      size_(TypeSize(model->type)) {}

PwStatus Pass::Forward() {
  switch (part_) {
    case PW_EMBEDDING:
      return EmbeddingForward();
    case PW_HEAD:
      return HeadForward();
    default:
      return LayerForward();
  }
}

PwStatus Pass::Backward(bool input, bool weight) {
  switch (part_) {
    case PW_EMBEDDING:
      return EmbeddingBackward(input, weight);
    case PW_HEAD:
      return HeadBackward(input, weight);
    default:
      return LayerBackward(input, weight);
  }
}

const void* Pass::Weight(int64_t offset) const {
  if (offset == kTiedTable) return memory_.table;
  if (offset < 0) return nullptr;
  return static_cast<const char*>(memory_.weights) + offset * size_;
}

float* Pass::Gradient(int64_t offset) const {
  if (offset == kTiedTable) return memory_.table_gradients;
  return offset < 0 ? nullptr : memory_.gradients + offset;
}

PwStatus Pass::Linear(int64_t weight, int64_t bias, int64_t inputs,
                      int64_t outputs, const void* x, void* y) {
  const int fp8 = Fp8IndexOf(model_, part_, weights_, weight);
  if (fp8 >= 0) return Fp8Forward(fp8, x, y);
  const PwGemm gemm = {PW_GEMM_FORWARD, model_.type, shape_.tokens, inputs,
                       outputs};
  return kernels_.gemm(device_, stream_, &gemm, x, Weight(weight), Weight(bias),
                       y);
}

PwStatus Pass::LinearInput(int64_t weight, int64_t inputs, int64_t outputs,
                           const void* dy, void* dx) {
  const int fp8 = Fp8IndexOf(model_, part_, weights_, weight);
  if (fp8 >= 0) return Fp8Input(fp8, dy, dx);
  const PwGemm gemm = {PW_GEMM_BACKWARD_INPUT, model_.type, shape_.tokens,
                       inputs, outputs};
  return kernels_.gemm(device_, stream_, &gemm, dy, Weight(weight), nullptr,
                       dx);
}

PwStatus Pass::LinearWeight(int64_t weight, int64_t bias, int64_t inputs,
                            int64_t outputs, const void* x, const void* dy) {
  const int fp8 = Fp8IndexOf(model_, part_, weights_, weight);
  if (fp8 >= 0) return Fp8Weight(fp8);
  const PwGemm gemm = {PW_GEMM_BACKWARD_WEIGHT, model_.type, shape_.tokens,
                       inputs, outputs};
  PW_RETURN_IF_ERROR(
      kernels_.gemm(device_, stream_, &gemm, x, dy, nullptr, Gradient(weight)));
  if (bias < 0) return PW_OK;
  return kernels_.bias_backward(device_, stream_, model_.type, shape_.tokens,
                                outputs, dy, Gradient(bias));
}

PwStatus Pass::Norm(int64_t gamma, int64_t beta, const void* x, void* y,
                    void* statistics) {
  return kernels_.norm_forward(device_, stream_, norm_, model_.type,
                               shape_.rows, shape_.hidden, model_.epsilon, x,
                               Weight(gamma), Weight(beta), y,
                               static_cast<float*>(statistics));
}

PwStatus Pass::NormBackward(int64_t gamma, int64_t beta, const void* dy,
                            const void* x, const void* statistics,
                            const void* residual, void* dx) {
  return kernels_.norm_backward(
      device_, stream_, norm_, model_.type, shape_.rows, shape_.hidden, dy, x,
      Weight(gamma), static_cast<const float*>(statistics), residual, dx,
      Gradient(gamma), Gradient(beta), Workspace(layout_.workspace.scratch));
}

PwStatus Pass::CopyHidden(const void* from, void* to) {
  return kernels_.copy(device_, stream_, PW_DEVICE_TO_DEVICE, to, from,
                       shape_.rows * shape_.hidden * size_);
}

PwStatus Pass::AddHidden(const void* a, const void* b, void* y) {
  return kernels_.add(device_, stream_, model_.type,
                      shape_.rows * shape_.hidden, a, b, y);
}

}  // namespace pipewright
