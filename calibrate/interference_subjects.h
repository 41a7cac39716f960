// Subjects for the interference matrix: F, B and W of a layer, each beside
// copies and transfers; the slow-down of both sides. Wall-clock time where a
// thread does what runs beside: a pass that waits for a core is slowed down.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "calibrate/copy_subjects.h"
#include "calibrate/device.h"
#include "calibrate/measure.h"
#include "calibrate/part_bench.h"

namespace pipewright {

// `bench`: of a layer. Samples are ratios of times that lie next to each
// other, so that drift cancels. On a GPU without a second one only the copies.
absl::StatusOr<std::vector<Subject>> InterferenceSubjects(
    Device* device, std::shared_ptr<PartBench> bench);

}  // namespace pipewright
