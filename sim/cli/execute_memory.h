// Memory of what `pipewright execute` runs, of all classes of replicas.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/train/training.h"
#include "kernels/kernels.h"
#include "sim/base/memory_claim.h"
#include "sim/cli/execute_report.h"
#include "sim/config/prepare.h"

namespace pipewright {

// The memory of the run, and of each of its classes, becomes that of the
// executor on a "cpu" or a "cuda" device. With lengths it is that of the
// microbatches that were dealt out, not of microbatch_size and sequence.
void TakeExecutorMemory(const std::string& device, PreparedRun* run);

// MemoryVerdict of the class that needs most.
absl::Status ExecutorMemoryVerdict(const PreparedRun& run);

// Which ranks this process runs.
struct OwnRanks {
  std::vector<int> ranks;  // one after the other, of replica 0; empty: all
  int process = -1;        // alone, replica * pp + rank; -1: all of them
};

// What they take of this machine, and on a GPU of its memory, in the parts of
// the run (RunPart). `run` has the memory of the executor.
absl::StatusOr<std::vector<MemoryClaim>> ClaimsOf(
    const PreparedRun& run, const Program& program, const ExecutedModel& model,
    const PwKernels* kernels, const TrainingOptions& training,
    const OwnRanks& own);

// kResourceExhausted where there is too little for all processes together, with
// what to change. `ranks`: of one process. *needed_bytes: of this machine.
absl::Status RunMemoryVerdict(const std::vector<MemoryNeed>& needs, int ranks,
                              double* needed_bytes);

// What each rank will need, whichever class needs most there; nothing without
// a model.
void PredictMemory(const PreparedRun& run, ExecuteReport* report);

}  // namespace pipewright
