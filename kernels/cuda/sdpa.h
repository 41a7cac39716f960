// cuDNN's attention: which shapes it takes, and one plan for each, made at its
// first use (seconds) and kept until the device is closed. Empty in a build
// without cuDNN's headers and on a machine without its library.
#ifndef PIPEWRIGHT_KERNELS_CUDA_SDPA_H_
#define PIPEWRIGHT_KERNELS_CUDA_SDPA_H_

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/cuda/device.h"

namespace pipewright::cuda {

// The tensors of one call; those that a pass does not have are NULL.
struct AttentionTensors {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  float* lse = nullptr;
  const void* d_o = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  void* workspace = nullptr;
};

class AttentionPlans {
 public:
  AttentionPlans();
  ~AttentionPlans();

  // "cudnn 9.19.0", "no cudnn".
  std::string Library() const;

  // True if cuDNN has a plan for a pass over this shape, which then takes so
  // many bytes of workspace.
  bool Takes(const PwAttention& shape, bool backward, size_t* workspace);

  // Why the shape that Takes() was last asked for has no plan although cuDNN is
  // there and shapes of this kind are its; "" else.
  const std::string& Refusal() const;

  // Queues a pass that Takes().
  PwStatus Run(PwDevice* device, PwStream* on, const PwAttention& shape,
               bool backward, const AttentionTensors& tensors);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The backend's own attention, for what cuDNN does not take
// (plain_attention_*.cu): fp32 or bf16, heads of at most 256, any queries <=
// keys.
PwStatus PlainAttentionForward(PwDevice* device, PwStream* on,
                               const PwAttention& shape,
                               const AttentionTensors& tensors);
// Its workspace: fp32 [batch, heads, queries].
PwStatus PlainAttentionBackward(PwDevice* device, PwStream* on,
                                const PwAttention& shape,
                                const AttentionTensors& tensors);

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_SDPA_H_
