// A clock of a few lines for EventRun: timers in a priority queue, flows
// max-min shared by progressive filling from scratch at every change, devices
// that never run ahead of it. Slow and simple; SimGrid's transport is held
// against it.
#pragma once

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"

namespace pipewright {

// `disturbance`: by so much of them the bytes of flows are off, each by another
// part of it, to see how much a run depends on roundings.
absl::StatusOr<RunSummary> RunOnQueue(const Program& program,
                                      TraceSink* trace = nullptr,
                                      double disturbance = 0);

}  // namespace pipewright
