// Memory of what `pipewright execute` runs, of all classes of replicas.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/train/training.h"
#include "kernels/kernels.h"
#include "sim/base/memory_claim.h"
#include "sim/config/prepare.h"

namespace pipewright {

struct ExecuteReport;

// The memory of the run, and of each of its classes, becomes that of the
// executor on a "cpu" or a "cuda" device. With lengths it is that of the
// microbatches that were dealt out, not of microbatch_size and sequence.
void TakeExecutorMemory(const std::string& device, PreparedRun* run);

// MemoryVerdict of the class that needs most.
absl::Status ExecutorMemoryVerdict(const PreparedRun& run);

// Claims of this process on this machine, and on the memory of its GPU, in the
// parts of the run (RunPart). `run` has the memory of the executor. `replayed`:
// the ranks that run one after the other, of replica 0; empty: all. `process`:
// runs one rank alone, replica * pp + rank; -1: all of them.
absl::StatusOr<std::vector<MemoryClaim>> ClaimsOf(
    const PreparedRun& run, const Program& program, const ExecutedModel& model,
    const PwKernels* kernels, const TrainingOptions& training,
    const std::vector<int>& replayed, int process);

// kResourceExhausted if there is too little for all processes together, with
// what to change. `ranks`: of one process. *needed_bytes: of this machine.
absl::Status RunMemoryVerdict(const std::vector<MemoryNeed>& needs, int ranks,
                              double* needed_bytes);

// Predicts what each rank will need, whichever class needs most there; nothing
// without a model.
void PredictMemory(const PreparedRun& run, ExecuteReport* report);

}  // namespace pipewright
