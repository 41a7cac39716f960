// Places of the fp8 copies of a layer's matrices, and their counterparts in a
// part's parameters and blocks. Not for callers of layer.h.
#ifndef PIPEWRIGHT_KERNELS_LAYER_FP8_H_
#define PIPEWRIGHT_KERNELS_LAYER_FP8_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels/layer.h"
#include "kernels/layer_plan.h"

namespace pipewright {

struct Fp8Matrix {
  int64_t weight;  // elements into the parameters
  int64_t bias;    // -1: none
  int64_t outputs;
  int64_t inputs;
  // Bytes into the block of pw_quantize_weights.
  size_t rows;     // [outputs, inputs], for F
  size_t columns;  // [inputs, outputs], for B
  size_t scale;
};

struct Fp8Weights {
  Fp8Matrix matrices[kFp8Matrices];
  size_t bytes = 0;
};
Fp8Weights Fp8WeightsOf(const PwModel& model);

// The matrix of `part` whose weights begin at `weight`; -1 where that one is
// not computed with in fp8.
int Fp8IndexOf(const PwModel& model, PwPart part, const PartWeights& weights,
               int64_t weight);

// Places of one matrix's tensors, bytes into `inputs` and `grads`.
struct Fp8Kept {
  size_t x;
  size_t x_scale;
  size_t dy;
  size_t dy_scale;
  size_t bias;
};
Fp8Kept Fp8KeptOf(const PartLayout& layout, const Fp8Weights& weights,
                  int index);

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_LAYER_FP8_H_
