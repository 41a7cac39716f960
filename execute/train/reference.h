// The gradients of a model's first step in float64, from the initial weights
// and tokens of the executed run: plain loops over formulas that are derived
// here (reference_math.h). It knows neither pipeline nor kernels, so that a
// pass that is wrong in the executor and in its sequential run alike is found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/train/executed_model.h"

namespace pipewright {

// A tensor of a stage's parameters: [begin, end) of them.
struct ReferenceTensor {
  int stage = 0;
  std::string name;  // "layer 3 qkv", "embedding table"
  int64_t begin = 0;
  int64_t end = 0;
};

struct ReferenceRun {
  double loss = 0;  // mean over tokens, nats
  std::vector<ReferenceTensor> tensors;
  // [stage][parameter], as they lie in a StageSnapshot.
  std::vector<std::vector<double>> weights;  // before the step
  std::vector<std::vector<double>> gradients;
};

// Multiply-adds of `microbatches`, and parameters: what a reference costs in
// time and in memory.
double ReferenceProducts(const ExecutedModel& model, int64_t microbatches);
int64_t ReferenceParameters(const ExecutedModel& model);

// Up to these it is part of every run. 5e10 are a good second on four cores,
// and 2^25 parameters take 0.8 GB at most.
inline constexpr double kMostReferenceProducts = 5e10;
inline constexpr int64_t kMostReferenceParameters = int64_t{1} << 25;

// What it takes of this machine at most, in bytes.
int64_t ReferenceMemory(const ExecutedModel& model, int64_t microbatches);

// Runs the first `microbatches` samples, whose tokens count alike, on several
// threads. Error: what the kernels say of the initial weights.
absl::StatusOr<ReferenceRun> RunReference(const ExecutedModel& model,
                                          int64_t microbatches);

}  // namespace pipewright
