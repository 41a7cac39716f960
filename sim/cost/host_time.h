// What the host takes to launch the kernels of an operation, by who launches
// them (Execution::launch). Launches are counted, the time of one is measured;
// no training run went into either.
#pragma once

#include "sim/cost/analytic.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

// Seconds to launch one kernel, by the host that the device is sold with and
// the framework's process.
double LaunchSecondsOf(const DeviceSpec& device, FrameworkKernels kernels);

// Half of a 90 % interval of Megatron-LM's launches, as a logarithm: 1.645
// standard deviations over 28 runs on two machines, the overhead of steps
// inside (experiments/megatron_host). Upwards: its tiny models take up to 1.9
// times as long in other container images (NVIDIA/Megatron-LM, pull requests
// 6991 and 7217), and how processes are bound to processors changes them, too
// (NVIDIA-NeMo/Megatron-Bridge 0.5.1, known issues). [paper]
inline constexpr double kMegatronHostError = 0.40;
inline constexpr double kMegatronHostMore = 0.64;

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
