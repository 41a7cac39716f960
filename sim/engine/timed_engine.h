// The event run on a clock of its own, without a network model: links are
// never shared. What the fast engine hands over where times depend on when
// something runs, which a longest-path sweep cannot say: passes that slow down
// what runs beside them.
#pragma once

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"

namespace pipewright {

absl::StatusOr<RunSummary> RunTimed(const Program& program,
                                    const EngineOptions& options);

}  // namespace pipewright
