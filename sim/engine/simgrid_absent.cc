// The row `simgrid` of a build without SimGrid (PIPEWRIGHT_SIMGRID=OFF), for
// machines that only calibrate and execute.
#include "sim/base/status.h"
#include "sim/engine/simgrid_engine.h"

namespace pipewright {

absl::StatusOr<RunSummary> RunSimgrid(const Program&, const EngineOptions&) {
  return SimgridStarts();
}

absl::Status SimgridStarts() {
  return absl::InvalidArgumentError(
      "engine: simgrid is not in this build (PIPEWRIGHT_SIMGRID=OFF); "
      "allowed: fast, fluid");
}

bool SimgridIsBuilt() { return false; }

}  // namespace pipewright
