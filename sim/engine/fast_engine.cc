#include "sim/engine/fast_engine.h"

#include "sim/engine/fast_run.h"
#include "sim/engine/timed_engine.h"

namespace pipewright {

absl::StatusOr<RunSummary> RunFast(const Program& program,
                                   const EngineOptions& options) {
  if (program.jitter != nullptr) return RunTimed(program, options);
  return FastRun(program, options.trace).Run();
}

}  // namespace pipewright
