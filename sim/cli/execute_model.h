// What `pipewright execute` takes from the configuration: run, model, times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/train/executed_model.h"
#include "sim/config/prepare.h"
#include "sim/report/report.h"

namespace pipewright {

// The run as simulate would have it, but with something to train: a gradient
// reduction where a stage has several copies, and an optimizer.
absl::StatusOr<PreparedRun> PrepareToTrain(const RunConfig& read,
                                           std::vector<std::string>* warnings);

// Are pass times known: given, measured or estimated?
bool HasTimes(const PreparedRun& run);

// Fills in what neither program nor run knows.
void DescribeExecuted(const PreparedRun& run, Report* report);

// Adds to *warnings where it trains in another way than the model says. Error:
// kInvalidArgument for a model that the executor cannot train.
absl::StatusOr<ExecutedModel> ModelToTrain(const PreparedRun& run, PwType type,
                                           uint64_t seed,
                                           std::vector<std::string>* warnings);

}  // namespace pipewright
