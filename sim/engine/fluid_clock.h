// The engine `fluid`: a Program on a clock of our own with links shared by
// FluidLinks, in the process that asks. The times of engine `simgrid` without
// SimGrid, for searches that run small programs thousands of times and for
// large programs.
#pragma once

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"

namespace pipewright {

// Errors as of an engine's `run`.
absl::StatusOr<RunSummary> RunOnFluidClock(const Program& program,
                                           const EngineOptions& options);
// A pull or push with so many peers at once, or more, shares exactly only the
// links that are its device's own (spread.h).
absl::StatusOr<RunSummary> RunOnFluidClockSpreading(
    const Program& program, const EngineOptions& options, int spread_peers);

// The same on links that are never shared. What the fast engine hands over
// where times depend on when something runs, which a longest-path sweep cannot
// say: passes that slow down what runs beside them.
absl::StatusOr<RunSummary> RunTimed(const Program& program,
                                    const EngineOptions& options);

}  // namespace pipewright
