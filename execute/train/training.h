// Trains a model under a Program and holds losses, gradients and weights
// against the sequential run: what `pipewright execute` does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/run/replay.h"
#include "execute/run/run_threads.h"
#include "execute/train/executed_model.h"
#include "execute/train/reference_check.h"
#include "execute/train/sequential.h"
#include "execute/train/worker_options.h"
#include "execute/transport/process_group.h"
#include "sim/memory/executor_memory.h"
#include "sim/program/lower.h"

namespace pipewright {

struct TrainingCheck {
  // The order in which gradients are added up is that of the sequential run,
  // so that on a deterministic device the bits are equal.
  bool same_order = false;
  // same_order, and the device is deterministic (the CPU): then nothing but
  // the same bits will do.
  bool bits_owed = false;
  bool same_bits = false;  // losses, gradients, weights
  // Steps whose gradients and weights are compared; losses are of all.
  std::vector<int> steps_in_full;
  // Stages whose gradients and weights of a step some replica or direction has
  // not told, counted by step.
  int missing = 0;
  // Largest differences: of losses relative to the loss, of gradients relative
  // to the largest of their stage, of weights relative to the largest change
  // that the optimizer has made in their stage since the start. AdamW divides a
  // gradient by its own size, so that the last bits of a small one move its
  // weight as far as a large one would: where the order of addition differs,
  // what comes behind the first step is held to less.
  double loss_error = 0;
  double first_gradient_error = 0;  // in the first step
  double gradient_error = 0;        // in all steps
  double weight_error = 0;
  double tolerance = 0;                   // for losses and first gradients
  double later_tolerance = 0;             // for later gradients
  double weight_tolerance = 0;            // for weights
  std::vector<double> losses;             // [iteration]
  std::vector<double> sequential_losses;  // the same

  bool ok() const;
};

struct TrainedRun {
  ExecutedRun run;
  TrainingCheck check;
  std::optional<ReferenceCheck> reference;
  std::vector<WorkerRecord> records;     // [replica * pp + rank]
  std::vector<double> peak_activations;  // [rank], the largest of replicas
  std::vector<double> peak_bytes;        // [rank], all but messages
  std::vector<double> resident_bytes;    // [rank], without activations
  std::vector<double> message_bytes;     // [rank], see WorkerRecord
  std::vector<double> owner_bytes;       // [rank], the same
  std::vector<double> peak_host_bytes;   // [rank], pinned, see WorkerRecord
  std::string device;
  std::string libraries;
};

struct TrainingOptions {
  ExecuteOptions execute;
  WorkerOptions worker;
  bool check = true;
  Progress* check_progress = nullptr;  // of the sequential run; may be null
  // Also against the float64 reference; `worker` keeps what KeepFirstStep says.
  bool reference = false;
  int device_index = 0;
  // Data of the device does not go through ProcessGroup: see
  // ExecuteOptions::data_path.
  bool device_path = false;
};

// What the worker has to know of how `program` was lowered.
WorkerOptions WorkerOptionsFor(const Program& program, DataParallel mode,
                               OptimizerMode optimizer,
                               const OptimizerOffload& offload = {});

// The subgroups of `rank`, whose stages `shards` replicas share.
HostSubgroupCounts CountHostSubgroups(const Schedule& schedule,
                                      const OptimizerOffload& offload, int rank,
                                      int shards);

// Does every stage add up its gradients in the order of the sequential run:
// microbatches up, slices down, one replica?
bool SameGradientOrder(const Program& program);

// The same of the table of a tied model.
bool SameTableOrder(const Program& program);

// Which versions of the weights the passes of a pipeline that is never flushed
// work with.
void SetWeightVersions(const Schedule& schedule, ExecutedModel* model);

// The head's output matrix becomes the embedding's table, with a copy where the
// two are on different ranks.
void TieTable(const Schedule& schedule, ExecutedModel* model);

SequentialOptions SequentialOptionsFor(const Program& program,
                                       const WorkerOptions& options);

// Errors: kInvalidArgument for what the executor cannot run, else as
// RunThreads.
absl::StatusOr<TrainedRun> TrainThreads(const Program& program,
                                        const ExecutedModel& model,
                                        const PwKernels* kernels,
                                        const TrainingOptions& options);

// The same with a process a rank. All processes get the check, process 0 the
// rest. Errors: as RunProcesses.
absl::StatusOr<TrainedRun> TrainProcesses(ProcessGroup* job,
                                          const Program& program,
                                          const ExecutedModel& model,
                                          const PwKernels* kernels,
                                          const TrainingOptions& options);

// Holds the records of all ranks, [replica * pp + rank], against `sequential`.
// `deterministic`: the device adds up in the same order every time.
TrainingCheck CheckTraining(const Program& program, const ExecutedModel& model,
                            const std::vector<WorkerRecord>& records,
                            const SequentialRun& sequential,
                            bool deterministic);

// kDataLoss where a rank has seen a loss that is not finite.
absl::Status CheckLossesFinite(const std::vector<WorkerRecord>& records);

// Trains a model rank by rank, each alone (replay.h): how long it takes, not
// whether it is right. Nothing is held against the sequential run.
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
