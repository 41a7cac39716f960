// Memory of what `pipewright execute` runs, of all classes of replicas.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "sim/cli/execute_report.h"
#include "sim/config/prepare.h"

namespace pipewright {

// The memory of the run, and of each of its classes, becomes that of the
// executor on a "cpu" or a "cuda" device. With lengths it is that of the
// microbatches that were dealt out, not of microbatch_size and sequence.
void TakeExecutorMemory(const std::string& device, PreparedRun* run);

// MemoryVerdict of the class that needs most.
absl::Status ExecutorMemoryVerdict(const PreparedRun& run);

// What each rank will need, whichever class needs most there; nothing without
// a model.
void PredictMemory(const PreparedRun& run, ExecuteReport* report);

}  // namespace pipewright
