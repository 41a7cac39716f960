// What `pipewright execute` trains, of what the configuration says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/executed_model.h"
#include "sim/config/prepare.h"

namespace pipewright {

// The run as simulate would have it, but with something to train: a gradient
// reduction where a stage has several copies, and an optimizer.
absl::StatusOr<PreparedRun> PrepareToTrain(const RunConfig& read,
                                           std::vector<std::string>* warnings);

// What is trained in another way than the model says is added to *warnings.
// Error: kInvalidArgument for what the executor cannot train.
absl::StatusOr<ExecutedModel> ModelToTrain(const PreparedRun& run, PwType type,
                                           uint64_t seed,
                                           std::vector<std::string>* warnings);

}  // namespace pipewright
