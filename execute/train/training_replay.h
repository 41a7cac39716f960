// Trains a model rank by rank, each alone (replay.h): how long it takes, not
// whether it is right. Nothing is held against the sequential run.
#pragma once

#include "execute/run/replay.h"
#include "execute/train/training.h"

namespace pipewright {

struct ReplayedTraining {
  ReplayedRun replay;
  // Peaks and devices of the ranks that have run, and zero for the others. No
  // run, no check.
  TrainedRun trained;
};

// Clock, faults and so on are those of `replay`; `options` gives the rest.
// Errors: as TrainThreads.
absl::StatusOr<ReplayedTraining> TrainReplay(const Program& program,
                                             const ExecutedModel& model,
                                             const PwKernels* kernels,
                                             const TrainingOptions& options,
                                             const ReplayOptions& replay);

}  // namespace pipewright
