// The engine without contention: one longest-path sweep over the orders of
// all ranks. Every transfer takes the time it takes alone. Replicas whose
// network times are the same are swept once.
#pragma once

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"

namespace pipewright {

absl::StatusOr<RunSummary> RunFast(const Program& program,
                                   const EngineOptions& options);

}  // namespace pipewright
