// Data-parallel replicas as `pipewright execute` runs them: of several classes,
// with packed samples of their own lengths, and with layers that they gather
// from each other.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "execute/train/executed_model.h"
#include "sim/config/prepare.h"

namespace pipewright {

struct Program;

// The mode of data parallelism of the run becomes that of all its classes, and
// gradients are reduced where no sizes are known.
void ReduceInClasses(PreparedRun* run);

// Of the longest microbatch, and the longest sample, that were dealt out.
int64_t MostTokens(const PreparedSequences& sequences);
int64_t LongestSample(const PreparedSequences& sequences);

// What packers have dealt out, instead of sequences of one length. Error: a
// sample longer than a model with learned positions has of them.
absl::Status TakeLengths(const PreparedRun& run, ExecutedModel* model);

struct ReplicaChecks {
  std::string device;
  bool replays = false;  // single ranks alone
  bool kernels = true;   // or given times
  double timeout_s = 0;
};

// What the executor cannot run of replicas that differ and of layers.
absl::Status CheckReplicas(const PreparedRun& run, const Program& program,
                           const ReplicaChecks& checks);

}  // namespace pipewright
