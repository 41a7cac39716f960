// The same training without a pipeline: one device, one microbatch after the
// other, loops that anybody can check. Of a pipeline that is never flushed it
// knows which weights a microbatch has, and nothing else. What the executor's
// gradients are held against. Shares the kernels with the executor and nothing
// else.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/train/executed_model.h"
#include "kernels/kernels.h"
#include "sim/engine/engine.h"

namespace pipewright {

struct SequentialOptions {
  int iterations = 1;
  int microbatches = 1;  // in an iteration, all replicas
  bool optimizer = true;
  bool clips = false;  // by the model's limit, else never
  // Microbatches of a step in a pipeline that is never flushed; 0: all of an
  // iteration. [stage] How many steps the weights of a forward are behind those
  // that its gradient changes (empty: none); and whether they are predicted as
  // many steps ahead, while the backward takes the newest (PipeOptim), or used
  // by the backward too (PipeDream-2BW).
  int update_every = 0;
  std::vector<int> behind;
  bool predicts = false;
  // Stages in the groups in which their norms are added up; sums of doubles
  // depend on it in the last bit.
  std::vector<std::vector<int>> norm_groups;
  // Iterations whose gradients and weights are kept; losses are of all.
  std::vector<int> kept;
  Progress* progress = nullptr;  // may be null
};

struct SequentialRun {
  struct Step {
    double loss = 0;  // mean over tokens, nats
    double norm = 0;  // norm of all gradients; 0 without an optimizer
    // Both of the last step of the iteration, if it has several; empty where
    // the iteration is not to be kept.
    // [stage][parameter], parts in their order; before clipping.
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<float>> weights;  // after the step
  };
  std::vector<std::vector<float>> initial_weights;  // as those of a step
  std::vector<Step> steps;                          // [iteration]
};

// Error: what the kernels say.
absl::StatusOr<SequentialRun> RunSequential(const ExecutedModel& model,
                                            const PwKernels* kernels,
                                            int device_index,
                                            const SequentialOptions& options);

// What it takes at most: of the device, and of the host what it gives back.
struct SequentialBytes {
  int64_t device = 0;
  int64_t host = 0;
};
absl::StatusOr<SequentialBytes> SequentialMemory(
    const ExecutedModel& model, const PwKernels* kernels, int device_index,
    const SequentialOptions& options);

}  // namespace pipewright
