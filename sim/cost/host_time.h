// What the host takes to launch the kernels of an operation, by who launches
// them (Execution::launch). Launches are counted, the time of one is measured;
// no training run went into either.
#pragma once

#include "sim/cost/analytic.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

// Seconds to launch one kernel, by the host that the device is sold with.
double LaunchSecondsOf(const DeviceSpec& device);

// How many times the host takes what it takes for one kernel of one PyTorch
// operation: kernels, and the work of modules around them in the same unit. 0
// in a graph.
double HostLaunches(const AnalyticOptions& options,
                    const TrainingSpec& training, const ModelOp& op,
                    OpPass pass);

// Launches of a CUDA graph, once for each pass of a layer that has one.
double GraphLaunches(const TrainingSpec& training,
                     const std::vector<ModelOp>& ops, OpPass pass);

}  // namespace pipewright
