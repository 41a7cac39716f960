// The engine `fluid`: a Program on a clock of our own with links shared by
// FluidLinks, in the process that asks. The times of engine `simgrid` without
// SimGrid, for searches that run small programs thousands of times and for
// large programs.
#pragma once

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"
#include "sim/engine/event_trial.h"

namespace pipewright {

// Errors as of an engine's `run`.
absl::StatusOr<RunSummary> RunOnFluidClock(const Program& program,
                                           const EngineOptions& options);
// The same otherwise, for tests and benchmarks.
absl::StatusOr<RunSummary> TryOnFluidClock(const Program& program,
                                           const EngineOptions& options,
                                           const EventTrial& trial);

// The same on links that are never shared. What the fast engine hands over
// where times depend on when something runs, which a longest-path sweep cannot
// say: passes that slow down what runs beside them.
absl::StatusOr<RunSummary> RunTimed(const Program& program,
                                    const EngineOptions& options);

}  // namespace pipewright
