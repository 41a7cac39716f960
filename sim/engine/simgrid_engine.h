// The engine on SimGrid: one host for each device and for each host's memory; a
// pass is an Exec, a transfer, copy or work of a host a Comm over its route.
// SimGrid shares links max-min fairly and says when each ends; what starts when
// is decided by EventRun. Runs in a child process, because SimGrid's engine can
// exist only once in a process.
//
// Not SimGrid's: latencies, which are timers in front of a Comm, because it
// would share links in proportion to 1/latency. A route is without the links
// that cannot bind.
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
