// The interval of a prepared run's step, where its times were measured or
// estimated.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "sim/config/prepare.h"
#include "sim/engine/step_interval.h"

namespace pipewright {

// The interval of a step that takes `iteration_s` on an engine. Nothing where
// the times were given, or where their error is not known: the warnings of
// Prepare say so. `program`: of run.lower. Errors: as RunFast.
absl::StatusOr<std::optional<StepInterval>> PredictStepOf(
    const PreparedRun& run, const Program& program, double iteration_s);

}  // namespace pipewright
