#include "execute/train/training_replay.h"

#include "execute/train/model_workers.h"
#include "sim/base/status.h"

namespace pipewright {

absl::StatusOr<ReplayedTraining> TrainReplay(const Program& program,
                                             const ExecutedModel& model,
                                             const PwKernels* kernels,
                                             const TrainingOptions& options,
                                             const ReplayOptions& replay) {
  PW_RETURN_IF_ERROR(CheckSupported(program, model));
  TrainingOptions alone = options;
  alone.worker.alone = true;
  alone.worker.snapshot_iterations.clear();
  ReplayedTraining replayed;
  const MakeWorker make_worker = ModelWorkers(
      program, model, kernels, alone, nullptr, &replayed.trained.records);
  PW_ASSIGN_OR_RETURN(replayed.replay, Replay(program, make_worker, replay));
  PW_RETURN_IF_ERROR(CheckLossesFinite(replayed.trained.records));
  PW_RETURN_IF_ERROR(
      DescribeRun(program, kernels, options.device_index, &replayed.trained));
  return replayed;
}

}  // namespace pipewright
