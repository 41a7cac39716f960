// Gradients of a rank's stages from one step to the next, their norm over all
// ranks, and the optimizer's steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/train/host_optimizer.h"
#include "execute/train/owners.h"
#include "execute/train/worker_device.h"
#include "execute/train/worker_options.h"
#include "execute/train/worker_stages.h"
#include "execute/transport/message.h"

namespace pipewright {

struct Start;

// Sum of squares and number of values that are not finite.
struct NormSums {
  double squares = 0;
  double not_finite = 0;

  // In memory of the host.
  Payload ToPayload() const;
  static const NormSums& Of(const Payload& payload) {
    return *static_cast<const NormSums*>(payload.data.get());
  }
};

// What a rank knows of the norm of all ranks' gradients: messages come down the
// ranks with what is known so far and go up again with everything.
struct GradientNorm {
  void TakeFull(const std::vector<Payload>& parts);
  double value() const;
  // What the gradients of `iteration` are multiplied with.
  float ClipScale(const ExecutedModel& model, int iteration) const;
  // Was a step before the norm was known wrong?
  bool Fails(const ExecutedModel& model, int iteration) const {
    return full.not_finite > 0 || ClipScale(model, iteration) < 1;
  }

  NormSums above;    // from the ranks above, as they say
  NormSums partial;  // with those of this rank
  NormSums full;     // over all ranks
  bool has_partial = false;
};

class GradientSums {
 public:
  using Key = WorkerStages::Key;

  // Both must outlive it.
  GradientSums(const WorkerStages& stages, const WorkerDevice& device)
      : stages_(stages), device_(device) {}
  // The stages are there.
  void Open();
  // Bytes of the host.
  size_t bytes() const;

  // A backward of `key` comes: the gradients of a new step begin at 0.
  absl::Status Refresh(Key key);
  // A step has been taken, or the iteration has ended.
  void Forget();

  // An all-reduce: this rank's part, and the sum of all.
  absl::Status GivePart(int32_t side_op, Payload* payload) const;
  absl::Status TakeParts(int32_t side_op,
                         const std::vector<Payload>& parts) const;
  // The reduction of a microbatch, or of several: adds to what is reduced of
  // the own shard of `unit`.
  absl::Status Add(int unit, const std::vector<Payload>& parts);
  // All that is reduced of it; becomes 0 in *sums.
  void TakeSums(int unit, float* sums);

  // What is reduced comes to the stages, once after each reduction: without one
  // a stage may still be adding up, or a thread copying what is there.
  absl::Status Assemble();
  absl::Status Assemble(Key key);
  // Adds what this rank's gradients make to *sums. Each stage counts once: both
  // directions hold the same after the reduction, and each data-parallel
  // replica has its shard.
  absl::Status AddNorm(NormSums* sums);

 private:
  // What an all-reduce sums: all copies on this rank, of *count elements.
  std::vector<float*> ReducedBy(int32_t side_op, int64_t* count) const;
  absl::Status SumParts(const std::vector<Payload>& parts, float* into) const;

  const WorkerStages& stages_;
  const WorkerDevice& device_;
  // Gradients are those of a step that has been taken.
  std::map<Key, bool> stale_;
  std::map<Key, std::vector<float>> sums_;  // reduced so far, of own shards
  std::set<Key> not_assembled_;             // whose gradients lack them
};

// Steps on the device or in the memory of the host (host_optimizer.h): taken
// with the norm, or before it is known and then validated, undone, predicted.
// And what a step has used, for a check of the training.
class OptimizerSteps {
 public:
  // All must outlive it. Snapshots go to *record.
  OptimizerSteps(const WorkerStages& stages, GradientSums& gradients,
                 OwnerClient& owners, WorkerDevice& device,
                 const WorkerOptions& options, WorkerRecord* record)
      : stages_(stages),
        gradients_(gradients),
        owners_(owners),
        device_(device),
        options_(options),
        record_(*record) {}
  // The stages are there, with their states elsewhere if options.offload is
  // active.
  absl::Status Open();

  // Steps that the weights of a forward of `iteration` are behind the newest.
  int Behind(int iteration) const;
  GradientNorm& norm() { return norm_; }
  // The norm with this rank's gradients is known.
  absl::Status KnowPartialNorm();

  // Operations of the optimizer; nothing to do for others. Seconds.
  absl::StatusOr<double> Run(int32_t side_op, const Start& start);
  // One that runs on the host, in two parts: on the rank's own thread what must
  // be so before it, and the operation on any thread.
  absl::StatusOr<HostOptimizer::Step> BeginHostOp(int32_t side_op,
                                                  const Start& start);
  absl::Status RunHostOp(int32_t side_op, const HostOptimizer::Step& step,
                         PwStream* stream) {
    return host_->Run(side_op, step, stream);
  }

  // Parameters that replicas share have been written: those that passes use
  // follow.
  absl::Status PublishShared(Stage& stage) const;

  bool WantsSnapshot(int iteration) const;
  absl::Status EndIteration(int iteration);

 private:
  absl::Status StepAll(float scale);
  absl::StatusOr<double> RunStep(const Start& start);
  absl::StatusOr<double> RunHostStep(int32_t side_op, const Start& start);
  // Parameters of others are as old as the last gather: a forward that does not
  // wait for the next one shall fail its check.
  absl::Status ForgetOthers();
  // The program knows how the step of `iteration` ended; `step` and the words
  // are for the error if it was otherwise.
  absl::Status Misjudged(const char* step, int iteration,
                         const char* outcome) const;
  absl::Status KeepFirstStep();
  // Appends snapshots of all stages.
  absl::Status TakeSnapshots(int iteration,
                             std::vector<StageSnapshot>* snapshots);

  const WorkerStages& stages_;
  GradientSums& gradients_;
  OwnerClient& owners_;
  WorkerDevice& device_;
  const WorkerOptions& options_;
  WorkerRecord& record_;
  GradientNorm norm_;
  int64_t steps_ = 0;                    // taken so far
  std::unique_ptr<HostOptimizer> host_;  // null: states are on the device
  bool stepping_ = false;  // what waits for the norm has begun on the host
};

}  // namespace pipewright
