#include "sim/engine/timed_engine.h"

#include "sim/engine/fluid_clock.h"

namespace pipewright {

absl::StatusOr<RunSummary> RunTimed(const Program& program,
                                    const EngineOptions& options) {
  EngineOptions alone = options;
  alone.share_links = false;
  return RunOnFluidClock(program, alone);
}

}  // namespace pipewright
