// What `pipewright execute` takes from the configuration: run and model, and
// the refusal of what the executor cannot run or only a prediction would
// follow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/run/clock.h"
#include "execute/train/executed_model.h"
#include "sim/config/prepare.h"

namespace pipewright {

struct ExecuteRequest;
struct Program;

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

// Tokens of the longest microbatch, and of the longest sample, that packers
// have dealt out.
int64_t MostTokens(const PreparedSequences& sequences);
int64_t LongestSample(const PreparedSequences& sequences);

// Adds to *warnings what is trained in another way than the model says. Error:
// kInvalidArgument for a model that the executor cannot train.
absl::StatusOr<ExecutedModel> ModelToTrain(const PreparedRun& run, PwType type,
                                           uint64_t seed,
                                           std::vector<std::string>* warnings);

}  // namespace pipewright
