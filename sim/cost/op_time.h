// The time of one pass of one operation on a device that is not at hand: of a
// table of measured rates where one is taken and has the kernel, else of the
// efficiency curves (kernel_time.h).
#pragma once

#include <string>

#include "sim/cost/analytic.h"
#include "sim/cost/clock.h"
#include "sim/cost/kernel_time.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

struct KernelEstimate {
  double seconds = 0;  // of a short run
  // Half of a 90 % interval, as a part of the time; 0: not known.
  double error = 0;
  // "curve"; "silicon"; ", outside" behind it beyond the measured sizes;
  // ", grouped" behind products of experts (GroupedSeconds); ", framework"
  // behind what AnalyticOptions::kernels makes longer.
  std::string how;
  // Measured rates alone follow the clock: the curves are of lasting loads.
  LoadedKernel load;
  double least_s = 0;  // whatever the clock
  std::string type;    // of the operands, where they are measured
};

// Under a lasting load's clock: a longer time, the law's error, and ", clock
// transferred" behind `how` where the law was not measured (clock.h).
void LowerClock(const DeviceSpec& device, double clock,
                KernelEstimate* estimate);

// In a short run.
KernelEstimate EstimateKernel(const AnalyticOptions& options,
                              const TrainingSpec& training, bool causal,
                              const ModelOp& op, OpPass pass);

}  // namespace pipewright
