// Casts of 8 and 4 bit (sim/model/precision.h): what makes the operands of
// activations and gradients, beside the products that take them. Weights are
// cast once a step and left out.
#pragma once

#include <string>

#include "sim/cost/analytic.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

// The casts for one pass of a linear layer: of its input before F, of the
// gradient of its output before B (W takes the same). On devices before
// Blackwell, whose products of 8 bit take both operands with the inner
// dimension first (NVIDIA, cuBLAS documentation, cublasLtMatmul, fp8), a cast
// writes a transposed copy for W too, and everywhere where scales lie along the
// inner dimension. `after_norm`: the input comes from a norm, which casts its
// output itself where the scale is known (NVIDIA, Transformer Engine User
// Guide: LayerNormLinear), so that there is only what it writes beyond 16 bit.
// With PyTorch's kernels (AnalyticOptions::kernels) and one scale a tensor:
// those of its float8 package, also before W. 0 for bf16 and for ops that are
// no linear layer.
double CastSeconds(const AnalyticOptions& options, const TrainingSpec& training,
                   const ModelOp& op, OpPass pass, bool after_norm);

// What of a measured product of `type` is the cast of its input, of so many
// elements, inside the measured call. 0 for bf16 and where no casts were
// measured. Large products of fp8 were taken of one campaign alone
// (calibrate/silicon/distil.py).
double CastInside(const AnalyticOptions& options, const std::string& type,
                  double flops, double elements);

}  // namespace pipewright
