#include "sim/engine/fast_engine.h"

#include "sim/engine/fast_run.h"

namespace pipewright {

absl::StatusOr<RunSummary> RunFast(const Program& program,
                                   const EngineOptions& options) {
  return FastRun(program, options.trace).Run();
}

}  // namespace pipewright
