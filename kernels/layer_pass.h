// One call of a pass of layer.h: the backend, the shapes and the memory in one
// place, with the primitives' common arguments filled in. Not for callers of
// layer.h.
#ifndef PIPEWRIGHT_KERNELS_LAYER_PASS_H_
#define PIPEWRIGHT_KERNELS_LAYER_PASS_H_

#include <vector>

#include "kernels/kernels.h"
#include "kernels/layer.h"
#include "kernels/layer_plan.h"

// Returns from the function with the first status that is not PW_OK.
#define PW_RETURN_IF_ERROR(expression)        \
  do {                                        \
    const PwStatus pw_status = (expression);  \
    if (pw_status != PW_OK) return pw_status; \
  } while (false)

namespace pipewright {

class Pass {
 public:
  Pass(const PwKernels* kernels, PwDevice* device, PwStream* stream,
       const PwModel* model, const PwWork* work, PwPart part,
       const PwPartMemory* memory);

  // Passes of this part.
  PwStatus Forward();
  PwStatus BackwardInput() { return Backward(true, false); }
  PwStatus BackwardWeight() { return Backward(false, true); }
  PwStatus BackwardFull() { return Backward(true, true); }

 private:
  PwStatus Backward(bool input, bool weight);

  PwStatus EmbeddingForward();
  PwStatus EmbeddingBackward(bool input, bool weight);
  PwStatus HeadForward();
  PwStatus HeadBackward(bool input, bool weight);
  PwStatus LayerForward();
  PwStatus LayerBackward(bool input, bool weight);
  PwStatus FeedForward();
  PwStatus FeedForwardBackward(bool input, bool weight);
  PwStatus Experts();
  PwStatus ExpertsBackward(bool input, bool weight);
  PwStatus SharedExperts(void* out);
  PwStatus SharedExpertsBackward(bool input, bool weight);
  PwStatus Activation(int64_t rows, int64_t columns, const void* x, void* y);
  PwStatus ActivationInput(int64_t rows, int64_t columns, const void* x,
                           const void* dy, void* dx);
  // Product of all own experts at once; fills tokens_of_ at its first use in a
  // pass.
  PwStatus Grouped(PwGemmPass pass, int64_t inputs, int64_t outputs,
                   const void* a, const void* b, void* c);
  PwStatus Attention();
  PwStatus AttentionInputGradient();
  PwStatus AttentionBackward(bool input, bool weight);
  PwStatus AttentionCore();
  PwStatus AttentionCoreBackward();
  PwStatus AttentionSliceBackward(int64_t sequence);
  PwStatus Rotate(void* qkv, int32_t inverse);

  // x[tokens, inputs] -> y[tokens, outputs].
  PwStatus Linear(int64_t weight, int64_t bias, int64_t inputs, int64_t outputs,
                  const void* x, void* y);
  PwStatus LinearInput(int64_t weight, int64_t inputs, int64_t outputs,
                       const void* dy, void* dx);
  PwStatus LinearWeight(int64_t weight, int64_t bias, int64_t inputs,
                        int64_t outputs, const void* x, const void* dy);
  // Products of the linear layer `index` (layer_fp8.h), for which these
  // quantise.
  PwStatus Fp8Forward(int index, const void* x, void* y);
  PwStatus Fp8Input(int index, const void* dy, void* dx);
  PwStatus Fp8Weight(int index);
  PwStatus Norm(int64_t gamma, int64_t beta, const void* x, void* y,
                void* statistics);
  PwStatus NormBackward(int64_t gamma, int64_t beta, const void* dy,
                        const void* x, const void* statistics,
                        const void* residual, void* dx);
  // The rows of the norms, [rows, hidden].
  PwStatus CopyHidden(const void* from, void* to);
  PwStatus AddHidden(const void* a, const void* b, void* y);

  const void* Weight(int64_t offset) const;
  float* Gradient(int64_t offset) const;
  char* Saved(size_t offset) const { return At(memory_.saved, offset); }
  char* Inputs(size_t offset) const { return At(memory_.inputs, offset); }
  char* Grads(size_t offset) const { return At(memory_.grads, offset); }
  char* Cache(size_t offset) const { return At(memory_.cache, offset); }
  char* Workspace(size_t offset) const { return At(memory_.workspace, offset); }
  const char* Quantized(size_t offset) const {
    return static_cast<const char*>(memory_.quantized) + offset;
  }
  // Where the inputs of a layer's linear layers and the gradients of their
  // outputs are made. With fp8 they only pass through the workspace; what is
  // kept is made from them.
  char* InputAt(size_t kept, size_t passing) const {
    return model_.fp8_linear ? Workspace(passing) : Inputs(kept);
  }
  char* GradientAt(size_t kept, size_t passing) const {
    return model_.fp8_linear ? Workspace(passing) : Grads(kept);
  }
  char* Normal1() const {
    return InputAt(layout_.inputs.normal1, layout_.workspace.hidden);
  }
  char* Normal2() const {
    return InputAt(layout_.inputs.normal2, layout_.workspace.hidden);
  }
  char* Active() const {
    return InputAt(layout_.inputs.active, layout_.workspace.wide);
  }
  // B reads it too.
  char* AttentionOutput() const {
    return model_.fp8_linear ? Saved(layout_.saved.attention)
                             : Inputs(layout_.inputs.attention);
  }
  char* QkvGradient() const {
    return GradientAt(layout_.grads.qkv, layout_.workspace.gradient);
  }
  char* WideGradient() const {
    return GradientAt(layout_.grads.wide, layout_.workspace.gradient);
  }
  char* MiddleGradient() const {
    return GradientAt(layout_.grads.out, layout_.workspace.middle);
  }
  static char* At(void* block, size_t offset) {
    return static_cast<char*>(block) + offset;
  }

  const PwKernels& kernels_;
  PwDevice* device_;
  PwStream* stream_;
  const PwModel& model_;
  const PwWork& work_;
  PwPart part_;
  const PwPartMemory& memory_;
  PartShape shape_;
  PartWeights weights_;
  PartLayout layout_;
  PwNorm norm_;
  int64_t size_;                    // bytes of an element
  std::vector<int64_t> tokens_of_;  // for own experts; empty: not asked yet
};

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_LAYER_PASS_H_
