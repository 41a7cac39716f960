// Subjects for the interference matrix: how much F, B and W of a layer, and the
// copies and transfers beside them, slow each other down. On a CPU, threads
// make the copies and transfers. Passes and copies are timed by thread time;
// transfers wait for each other, so they are timed by wall time.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "calibrate/copy_subjects.h"
#include "calibrate/device.h"
#include "calibrate/measure.h"
#include "calibrate/pass_subjects.h"
#include "calibrate/transfer_subjects.h"

namespace pipewright {

// Bytes of the device that InterferenceSubjects takes, beside the bench's.
int64_t InterferenceBytes(const MeasuredDevice& device);

// They run the example of `passes`; on a CPU the small one while *brief is
// true, null: never. Samples are ratios of times measured next to each
// other, so that drift cancels. On a GPU, passes run beside transfers only
// where one of `transports` spans several GPUs, see Transport::begin; on a CPU
// two threads transfer.
absl::StatusOr<std::vector<Subject>> InterferenceSubjects(
    MeasuredDevice* device, const PassSet& passes,
    std::shared_ptr<const bool> brief,
    const std::vector<Transport>& transports);

}  // namespace pipewright
