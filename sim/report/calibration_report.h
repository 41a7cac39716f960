// Calibration profiles for people and, as one JSON object, for scripts: what
// was measured, how noisy it is, what a model lacks, how two profiles differ.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"

namespace pipewright {

std::string CalibrationReport(const Profile& profile, bool json);

// With what `model` lacks: passes of its shape that were not measured. Error:
// kInvalidArgument for a model that no profile can have.
absl::StatusOr<std::string> CalibrationReport(const Profile& profile,
                                              const ModelSpec& model,
                                              bool json);

// `profiles` of one device in the order in which they were made.
std::string CoverageReport(const std::vector<Profile>& profiles);
// The same with a line a kind: kind,inside,compared,share,next_inside,
// next_compared,next_share.
std::string CoverageCsv(const std::vector<Profile>& profiles);

std::string DiffReport(const Profile& before, const Profile& after, bool json);

}  // namespace pipewright
