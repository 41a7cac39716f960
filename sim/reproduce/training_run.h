// A configuration through the same path as `simulate`, for published tables of
// whole training steps.
#pragma once

#include "absl/status/statusor.h"
#include "sim/config/run_config.h"
#include "sim/report/report.h"

namespace pipewright {

// Errors: those of Prepare, Lower and the engine.
absl::StatusOr<Report> RunTraining(const RunConfig& config);

}  // namespace pipewright
