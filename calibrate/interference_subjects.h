// Subjects for the interference matrix: F, B and W of a layer, each beside
// copies and transfers; the slow-down of both sides. On a CPU threads do what
// runs beside; passes and copies are timed by thread time, transfers, which
// wait for each other, by the clock on the wall.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "calibrate/copy_subjects.h"
#include "calibrate/device.h"
#include "calibrate/measure.h"
#include "calibrate/part_bench.h"
#include "calibrate/transfer_subjects.h"

namespace pipewright {

// Bytes of the device that InterferenceSubjects takes, beside the bench's.
int64_t InterferenceBytes(const MeasuredDevice& device);

// `bench`: of a layer. Samples are ratios of times that lie next to each
// other, so that drift cancels. On a GPU beside transfers only where one of
// `transports` runs on several, see Transport::begin; on a CPU they are those
// of two threads.
absl::StatusOr<std::vector<Subject>> InterferenceSubjects(
    MeasuredDevice* device, std::shared_ptr<PartBench> bench,
    const std::vector<Transport>& transports);

}  // namespace pipewright
