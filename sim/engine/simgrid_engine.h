// The engine on SimGrid: transfers that can meet on a link are flows that
// share it max-min fairly (FluidLinks, or SimGrid's own network model);
// everything else is a timer. Runs in a child
// process, because SimGrid's engine can exist only once in a process.
#pragma once

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"

namespace pipewright {

absl::StatusOr<RunSummary> RunSimgrid(const Program& program,
                                      const EngineOptions& options);

// False in a build with PIPEWRIGHT_SIMGRID=OFF.
bool SimgridIsBuilt();

// Loads the engine's library. Error: what RunSimgrid would say for want of it.
absl::Status SimgridStarts();

}  // namespace pipewright
