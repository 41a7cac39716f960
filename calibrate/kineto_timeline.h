// Shares a stretch of time among the parts whose kernels run in it.
#pragma once

#include <array>
#include <vector>

#include "calibrate/kineto_names.h"

namespace pipewright {

struct PartKernel {
  TracePart part = TracePart::kLayer;
  double start_us = 0;
  double end_us = 0;
};

// Microseconds by TracePart. They add up to the time from the first start to
// the last end: an overlap is the earliest kernel's, but communication's only
// where it is alone; a gap is that of the kernel behind it.
std::array<double, kNumTraceParts> ShareTimeline(
    std::vector<PartKernel> kernels);

}  // namespace pipewright
