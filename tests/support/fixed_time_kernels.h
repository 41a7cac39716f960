// The CPU's kernels with a clock that goes on by what a test says of a layer's
// passes and of a step of the optimizer, and stands still otherwise.
#pragma once

#include "kernels/kernels.h"

namespace pipewright::testing {

struct FixedTimes {
  double forward_s = 0;  // for one layer
  double backward_input_s = 0;
  double backward_weight_s = 0;
  double optimizer_s = 0;  // for one stage
};

// One at a time. A rank's thread has a clock of its own.
const PwKernels* FixedTimeKernels(const FixedTimes& times);

}  // namespace pipewright::testing
