// All that a calibration measures beside the passes: optimizer, memory,
// copies, transfers, interference.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "calibrate/device.h"
#include "calibrate/measure.h"
#include "calibrate/pass_subjects.h"
#include "calibrate/transfer_subjects.h"

namespace pipewright {

// Bytes of the device for copies and what runs beside passes, without the
// optimizer's.
int64_t SideBytes(const MeasuredDevice& device, bool quick);

// The benches of `passes` are for the interference matrix. The transfers of
// `transports` are measured; without any, those of threads on a CPU and none on
// a GPU. What cannot be measured here goes to `warnings`.
absl::StatusOr<std::vector<Subject>> SideSubjects(
    MeasuredDevice* device, const PassSet& passes,
    std::shared_ptr<const bool> brief, const std::vector<Transport>& transports,
    bool quick, std::vector<std::string>* warnings);

}  // namespace pipewright
