// Subjects that time single kernels: what a matrix product, attention or a norm
// achieves by itself. Passes are what a simulation uses; these say where their
// time goes, and whether a rate is beyond what the device can do.
#pragma once

#include <memory>
#include <vector>

#include "calibrate/device.h"
#include "calibrate/measure.h"
#include "calibrate/part_bench.h"

namespace pipewright {

// A layer's kernels are timed together with those of the first of `heads` that
// has its microbatch size, sequence and tp; there has to be one. A kernel that
// several shapes share is timed in the first. On a GPU each starts with a cold
// cache; on the CPU with what the kernel before it left there. The device
// outlives them.
std::vector<Subject> KernelSubjects(
    MeasuredDevice* device,
    const std::vector<std::shared_ptr<PartBench>>& layers,
    const std::vector<std::shared_ptr<PartBench>>& heads);

}  // namespace pipewright
