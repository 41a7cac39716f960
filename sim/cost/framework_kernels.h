// What a framework's own kernels take where it runs others than the fused ones
// that the tables and curves are of.
#pragma once

#include <cstdint>

#include "sim/cost/device.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

enum class FrameworkKernels : uint8_t {
  kFused,     // Transformer Engine's, as Megatron-LM runs them
  kCompiled,  // PyTorch with torch.compile: what it does not compile is eager
  kEager,     // PyTorch without it
};

// The time of a pass of an operation over what the tables or curves say.
// PyTorch runs FlashAttention-2 unless told otherwise, which Hopper's tensor
// cores do not fill; rotary embeddings in complex numbers, which torch.compile
// does not generate code for; cross-entropy in fp32, outside of what is
// compiled; and, eager, RMS norms in five kernels (`is_rms`; a layer norm is
// one). All were measured eager on an H100 (experiments/h100_load,
// mixtures.csv: heads of 128 at 8192 tokens, 16384 rows of 4096, 128256 words);
// nothing was measured compiled, and other devices are taken to need the same
// traffic. Activations and residuals keep their time. The factor of attention
// is Hopper's alone. `training`: whose cross-entropy the op's bytes are of.
double FrameworkFactor(FrameworkKernels kernels, const DeviceSpec& device,
                       bool is_rms, const TrainingSpec& training,
                       const ModelOp& op, OpPass pass);

}  // namespace pipewright
