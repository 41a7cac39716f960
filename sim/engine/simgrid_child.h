// Runs a simulation in a forked child and brings its result back: trace
// operations as they come, the summary at the end. A SimGrid engine can exist
// only once in a process and cannot be reset (reference: SimGrid 3.32 manual,
// s4u::Engine); a child costs about 3 ms.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"

namespace pipewright {

// Calls `run` in a child with a sink that writes to `trace` here, or null
// where `trace` is null. Error: what `run` returned, or kInternal when the
// child died.
absl::StatusOr<RunSummary> RunInChild(
    TraceSink* trace,
    const std::function<absl::StatusOr<RunSummary>(TraceSink*)>& run);

}  // namespace pipewright
