// What a framework's own kernels take where it runs others than the fused ones
// that the tables and curves are of.
#pragma once

#include <cstdint>

#include "sim/cost/device.h"
#include "sim/model/ops.h"

namespace pipewright {

enum class FrameworkKernels : uint8_t {
  kFused,     // Transformer Engine's, as Megatron-LM runs them
  kCompiled,  // PyTorch with torch.compile: what it does not compile is eager
  kEager,     // PyTorch without it
};

// The time of a pass of an operation over that of the fused kernel. PyTorch
// runs FlashAttention-2 unless told otherwise, which Hopper's tensor cores do
// not fill; rotary embeddings in complex numbers and cross-entropy in fp32,
// which torch.compile leaves as they are; and, without it, norms in five
// kernels. Measured on an H100 (experiments/h100_load, mixtures.csv: heads of
// 128 at 8192 tokens, 16384 rows of 4096, 128256 words). Activations and
// residuals keep their time. The factor of attention is Hopper's alone.
double FrameworkFactor(FrameworkKernels kernels, const DeviceSpec& device,
                       const ModelOp& op, OpPass pass);

}  // namespace pipewright
