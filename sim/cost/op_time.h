// The time of one pass of one operation on a device that is not at hand: of a
// table of measured rates where one is taken and has the kernel, else of the
// efficiency curves (kernel_time.h).
#pragma once

#include <string>

#include "sim/cost/analytic.h"
#include "sim/cost/kernel_time.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

struct KernelEstimate {
  double seconds = 0;
  // Half of a 90 % interval, as a part of the time; 0: not known.
  double error = 0;
  // "curve"; "silicon"; "silicon, clock transferred", where the clock under a
  // lasting load follows from the law of clock.h on another device or type than
  // it was fitted on; ", outside" behind either beyond the measured sizes;
  // ", grouped" behind products of experts (GroupedSeconds).
  std::string how;
};

KernelEstimate EstimateKernel(const AnalyticOptions& options,
                              const TrainingSpec& training, bool causal,
                              const ModelOp& op, OpPass pass);

}  // namespace pipewright
