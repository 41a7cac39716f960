// Subjects that time the optimizer's step, on the device and on the host, and
// the bandwidth of the host's memory.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "calibrate/device.h"
#include "calibrate/measure.h"

namespace pipewright {

// AdamW over `parameters`: those of a layer. With a `type` that is not fp32 the
// step writes the weights in it too, beside the master.
absl::StatusOr<std::vector<Subject>> OptimizerSubjects(MeasuredDevice* device,
                                                       PwType type,
                                                       int64_t parameters);

// a = b + s c over arrays larger than the host's caches, a thread for each CPU
// that this one may run on (the triad of McCalpin's STREAM; bytes read and
// written, no write-allocate counted), from the first thread's start to the
// last one's end.
Subject HostMemorySubject();

}  // namespace pipewright
