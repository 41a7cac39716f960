// What `pipewright execute` takes from the configuration: run, model and memory
// of all classes of replicas, and the refusal of what the executor cannot run
// or only a prediction would follow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/train/training.h"
#include "sim/base/memory_claim.h"
#include "sim/config/prepare.h"

namespace pipewright {

struct ExecuteReport;
struct ExecuteRequest;

// `read` without the defaults of a prediction that do not hold for this clock:
// passes and copies that slow each other down, and passes of 1 s if nobody has
// given times. Only the paced clock uses these; the others measure.
RunConfig WithoutUnexecuted(RunConfig read, ClockKind clock);

// The run as simulate would have it, but with something to train: a gradient
// reduction, in all classes of replicas, if a stage has several copies, and an
// optimizer.
absl::StatusOr<PreparedRun> PrepareToTrain(const RunConfig& read,
                                           std::vector<std::string>* warnings);

// Are pass times known: given, measured or estimated?
bool HasTimes(const PreparedRun& run);

// Error: kInvalidArgument for fields that only the prediction would follow:
// links that no message takes, microbatches of unlike lengths. `processes`: the
// ranks are processes, perhaps on several machines.
absl::Status CheckPredictable(const PreparedRun& run,
                              const ExecuteRequest& request, bool processes);

// Refuses what the executor cannot run of replicas that differ, of layers that
// replicas gather from each other, and of the optimizer.
absl::Status CheckReplicas(const PreparedRun& run, const Program& program,
                           const ExecuteRequest& request);

// Warns of options that do nothing beside the others, and of the fields that
// serve the prediction alone if `run` has no times to predict from.
void WarnOfIdle(const PreparedRun& run, const ExecuteRequest& request,
                std::vector<std::string>* warnings);

// The samples that packers have dealt out, instead of sequences of one length.
struct DealtSamples {
  // [microbatch of an iteration, replica after replica]: lengths of samples.
  std::vector<std::vector<int64_t>> lengths;
  int64_t most_tokens = 0;  // of a microbatch
  int64_t longest = 0;      // sample
};
DealtSamples DealtSamplesOf(const PreparedSequences& sequences);

// Adds to *warnings what is trained in another way than the model says. Error:
// kInvalidArgument for a model that the executor cannot train.
absl::StatusOr<ExecutedModel> ModelToTrain(const PreparedRun& run, PwType type,
                                           uint64_t seed,
                                           std::vector<std::string>* warnings);

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
