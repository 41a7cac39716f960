#include "sim/engine/fast_engine.h"

#include "sim/engine/fast_run.h"
#include "sim/engine/known_times.h"
#include "sim/engine/timed_engine.h"

namespace pipewright {

absl::StatusOr<RunSummary> RunFastKnowing(const Program& program,
                                          const EngineOptions& options,
                                          KnownTimes* known) {
  if (program.interference != nullptr) return RunTimed(program, options);
  return FastRun(program, options, known).Run();
}

absl::StatusOr<RunSummary> RunFast(const Program& program,
                                   const EngineOptions& options) {
  return RunFastKnowing(program, options, nullptr);
}

}  // namespace pipewright
