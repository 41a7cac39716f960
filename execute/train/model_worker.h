// A worker that trains: the stages of one rank with the real kernels on one
// device. What it sends are real activations and gradients, what it reduces
// real gradients, what it steps real weights. Its parts own the state; this
// does what a Worker is told with them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "execute/run/worker.h"
#include "execute/train/executed_model.h"
#include "execute/train/optimizer_steps.h"
#include "execute/train/owners.h"
#include "execute/train/units.h"
#include "execute/train/worker_device.h"
#include "execute/train/worker_options.h"
#include "execute/train/worker_stages.h"

namespace pipewright {

// What waits between the passes of a rank: inputs until a pass uses them,
// outputs until another rank gets them; and how often each forward has run.
class PassPayloads {
 public:
  enum class Box { kInput, kOutput };

  // For `pass` or, if `unit` is another one, the same kind of pass there.
  void Put(Box box, Pass pass, int unit, Payload payload) {
    waiting_[{box, KeyOf(pass, unit)}] = std::move(payload);
  }
  // Nothing if none has come.
  std::optional<Payload> Take(Box box, Pass pass, int unit);
  // The iteration that the data of a forward is of: how often it has run.
  int CountForward(Pass pass, int unit) {
    return forwards_[KeyOf(pass, unit)]++;
  }

  void BeginFalseStart() { before_false_start_ = forwards_; }
  // What the false start has computed stands on weights that are undone.
  void BeginAgain() {
    forwards_ = before_false_start_;
    Clear();
  }
  void Clear() { waiting_.clear(); }

 private:
  // Is it a forward; unit, direction, microbatch, slice.
  using Key = std::tuple<bool, int, int, int, int>;
  static Key KeyOf(Pass pass, int unit) {
    return {pass.kind() == PassKind::kForward, unit, pass.direction(),
            pass.microbatch(), pass.slice()};
  }

  std::map<std::pair<Box, Key>, Payload> waiting_;
  std::map<Key, int> forwards_;
  std::map<Key, int> before_false_start_;
};

class ModelWorker : public Worker {
 public:
  // `model` must outlive it. Not thread-safe; StartCopy and StartSideOp run
  // their work on threads of their own.
  static absl::StatusOr<std::unique_ptr<ModelWorker>> Create(
      const Program& program, Address self, const ExecutedModel& model,
      const PwKernels* kernels, int device_index, const WorkerOptions& options);
  ~ModelWorker() override;

  // Runs every kernel once, and touches the memory that a run will need.
  absl::Status WarmUp();

  absl::Status BeginStart(const Start& start) override;
  absl::Status EndIteration(int iteration) override;
  bool WantsAllEnded(int iteration) const override;
  void Forget() override;
  absl::StatusOr<Payload> TakeMemory(size_t bytes) override;
  // After WarmUp, whose kernels have ended.
  absl::Status ReserveMemory(int inputs) override {
    device_.memory().Settle();
    return device_.memory().Reserve(stages_.model().BoundaryBytes(), inputs);
  }
  void BeginBlock(const Pass* block, int parts) override {
    memory_.BeginBlock(block, parts);
  }
  void EndBlock(const Pass* block, int parts) override {
    memory_.EndBlock(block, parts);
  }
  absl::StatusOr<double> RunPass(Pass pass, int stage) override;
  void TakeInput(Pass pass, int stage, Payload payload) override;
  Payload GiveOutput(Pass pass, int stage) override;
  absl::Status IssueCopy(Pass pass, int stage) override;
  absl::StatusOr<double> RunCopy(Pass pass, int stage) override;
  void StartCopy(Pass pass, int stage,
                 std::function<void(absl::Status)> ended) override;
  absl::Status FreeOffloaded(Pass pass, int stage) override;
  absl::StatusOr<double> RunSideOp(int32_t side_op,
                                   const Start& start) override;
  void StartSideOp(int32_t side_op, const Start& start,
                   std::function<void(absl::Status)> ended) override;
  void TakeSideInput(int32_t side_op, int32_t channel,
                     Payload payload) override;
  Payload GiveSideOutput(int32_t side_op, int32_t channel) override;
  Payload GivePart(int32_t side_op, int self, int to, int members) override;
  absl::Status TakeParts(int32_t side_op, int self,
                         const std::vector<Payload>& parts) override;
  void StartReach(int32_t side_op,
                  std::function<void(absl::Status)> ended) override;

 private:
  ModelWorker(const Program& program, Address self, const ExecutedModel& model,
              const WorkerOptions& options);
  absl::Status Initialize(const PwKernels* kernels, int device_index);
  absl::StatusOr<Payload> RandomBlock();
  int64_t SampleOf(Pass pass, int iteration) const;
  float LossScale(int64_t sample) const;
  // *held: what its kernels still read when it returns.
  absl::Status RunKernels(Pass pass, int unit, Payload* held);

  const WorkerOptions options_;
  const StepMicrobatches microbatches_;
  const double tokens_;  // in a step
  WorkerDevice device_;
  WorkerStages stages_;
  GradientSums gradients_;
  PassPayloads payloads_;
  Payload stand_in_;                     // for what others would send
  std::map<uint64_t, HostCopy> issued_;  // by bits of O or L, until they run
  OwnerClient owners_;
  WorkerMemory memory_;
  WorkerRecord record_;
  OptimizerSteps steps_;
  absl::Status failed_;  // in a function that cannot say so itself
};

}  // namespace pipewright
