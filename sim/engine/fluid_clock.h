// A Program on a clock of our own with links shared by FluidLinks: the times of
// engine `simgrid` without SimGrid, in the process that asks. For searches that
// run small programs thousands of times.
#pragma once

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"

namespace pipewright {

// Errors as of an engine's `run`.
absl::StatusOr<RunSummary> RunOnFluidClock(const Program& program,
                                           const EngineOptions& options);

}  // namespace pipewright
