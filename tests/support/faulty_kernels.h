// The CPU's kernels with one of them wrong: whoever trains with the table, by
// whatever schedule, gets the same wrong numbers.
#pragma once

#include "kernels/kernels.h"

namespace pipewright::testing {

enum class KernelFault {
  kNone,
  kNoWeightPass,      // all that W does returns at once
  kNoInputPass,       // all that B does
  kWeightPassScaled,  // what W adds to gradients of matrices, times 0.99
  kInputPassScaled,   // gradients of the inputs of linear layers, times 0.99
  kMaskOffByOne,      // every query sees the next key, forward and backward
  kNoBias,            // in linear layers, forward
  kNoBiasGradient,
  kEmbeddingNotAdded,  // gradients of the table are those of the last
                       // microbatch that had the token
  kNoGainGradient,     // in norms
  kNoWeightDecay,      // in the optimizer
};

// One fault at a time for all tables. Products in bf16 are there on every
// processor, if need be by way of fp32.
const PwKernels* FaultyKernels(KernelFault fault);

}  // namespace pipewright::testing
