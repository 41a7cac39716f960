// Shared by all ways to train: which models can be trained, the workers of the
// ranks, and the results from their records.
#pragma once

#include <memory>
#include <vector>

#include "execute/train/training.h"

namespace pipewright {

// Error: kInvalidArgument for what the executor cannot run.
absl::Status CheckSupported(const Program& program, const ExecutedModel& model);

// A worker of each rank that leaves its record in *records[replica * pp +
// rank]. All but `owners`, null where there are none, must outlive it.
MakeWorker ModelWorkers(const Program& program, const ExecutedModel& model,
                        const PwKernels* kernels,
                        const TrainingOptions& options,
                        std::shared_ptr<Owners> owners,
                        std::vector<WorkerRecord>* records);

// Device, libraries and the ranks' peaks, from trained->records.
absl::Status DescribeRun(const Program& program, const PwKernels* kernels,
                         int device_index, TrainedRun* trained);

}  // namespace pipewright
