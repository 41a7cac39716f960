// A worker that trains: the stages of one rank with the real kernels on one
// device. What it sends are real activations and gradients, what it reduces
// real gradients, what it steps real weights.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "execute/run/faults.h"
#include "execute/run/worker.h"
#include "execute/train/executed_model.h"
#include "execute/train/host_optimizer.h"
#include "execute/train/owners.h"
#include "execute/train/stage.h"
#include "execute/train/units.h"
#include "execute/train/work_thread.h"
#include "execute/train/worker_options.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/trace/export.h"

namespace pipewright {

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
    arena_->Settle();
    return arena_->Reserve(model_.BoundaryBytes(), inputs);
  }
  void BeginBlock(const Pass* block, int parts) override;
  void EndBlock(const Pass* block, int parts) override;
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
  Payload ServePull(Address from, int32_t side_op) override;
  void TakePulled(int32_t side_op, Payload payload) override;
  Payload GivePush(int32_t side_op) override;
  void TakePush(Address from, int32_t side_op, Payload payload) override;
  void StartReach(int32_t side_op,
                  std::function<void(absl::Status)> ended) override;

 private:
  // Unit (Units) and direction in the schedule.
  using StageKey = std::pair<int, int>;
  // What waits for a pass: its kind of input, stage, replica, (microbatch,
  // slice).
  using InputKey = std::tuple<bool, int, int, int, int>;
  // Sum of squares and count of values that are not finite.
  struct NormState {
    double squares = 0;
    double not_finite = 0;
  };

  ModelWorker(const Program& program, Address self, const ExecutedModel& model,
              const WorkerOptions& options);
  absl::Status Initialize(const PwKernels* kernels, int device_index);
  Stage& StageOf(int unit, int bidirectional) {
    return *stages_.at({unit, bidirectional});
  }
  std::pair<int64_t, int64_t> ShardOf(const Stage& stage, int member,
                                      int members) const;
  // The shard of this rank's data-parallel replica; all without shards.
  std::pair<int64_t, int64_t> OwnShard(const Stage& stage) const;
  int64_t SampleOf(Pass pass, int iteration) const;
  float LossScale(int64_t sample) const;
  const DpClass& own() const { return program_.OfReplica(self_.replica); }
  const RankProgram& rank() const { return own().ranks[self_.rank]; }
  // Unit of a pass of the rank's order.
  int UnitOf(Pass pass) const {
    return units_.Of(rank(), pass, rank().lanes[pass.lane()].stage);
  }
  // Steps that the weights of a forward of `iteration` are behind the newest.
  int Behind(int iteration) const;
  absl::Status Refresh(StageKey key);
  // What an all-reduce sums: all copies on this rank, of so many elements.
  struct Reduced {
    int64_t count = 0;
    std::vector<float*> gradients;
  };
  Reduced ReducedBy(int32_t side_op);
  // *held: what its kernels still read when it returns.
  absl::Status RunKernels(Pass pass, int unit, Payload* held);
  absl::StatusOr<double> Timed(const std::function<absl::Status()>& work,
                               bool held = false);
  absl::StatusOr<Payload> RandomBlock();
  // Makes the blocks that the passes of an iteration hold together, and those
  // of what they send.
  absl::Status ReserveBlocks();
  // [bytes]: blocks of activations at the same time.
  struct HeldBlocks {
    std::map<size_t, int> device;
    std::map<size_t, int> host;
  };
  HeldBlocks MostHeld() const;
  // Fills microbatch_bytes_.
  void MeasureMicrobatch();
  // What the stages hold, in microbatches (see WorkerRecord).
  double HeldNow() const;
  bool WantsSnapshot(int iteration) const;
  absl::Status StepAll(int64_t step, float scale);
  absl::Status ForgetOthers();
  void EndThreads();
  absl::Status MakeHostStep();
  absl::StatusOr<HostOptimizer::Step> BeginHostOp(int32_t side_op);
  absl::StatusOr<double> RunHostStep(int32_t side_op);
  absl::Status EndHostStep();
  absl::Status CopyHostMaster(int unit, StageSnapshot* snapshot);
  absl::Status PublishShared(Stage* stage);
  absl::Status TakeSnapshots(int iteration);
  // Appends snapshots of all stages to `snapshots`.
  absl::Status TakeSnapshots(int iteration,
                             std::vector<StageSnapshot>* snapshots);
  absl::Status KeepFirstStep();
  absl::Status LocalNorm(NormState* state);
  // What the gradients are multiplied with, from the norm that is known.
  float ClipScale(int iteration, const NormState& state) const;
  absl::Status Assemble();
  absl::Status Assemble(StageKey key);
  absl::Status PartialNorm();
  // In memory of the host.
  static Payload PayloadOf(const NormState& state);
  absl::Status SumParts(const std::vector<Payload>& parts, float* into);
  const SideOp& OpOf(int32_t side_op) const { return rank().side_ops[side_op]; }
  // Those that hold a unit, here.
  std::vector<Stage*> StagesOf(int unit);

  // model_worker_owners.cc
  absl::Status OpenOwner();
  // Layers of a stage use one workspace.
  void ShareScratch();
  void CountOwnerBytes();
  // The weights of the own part, for others to read.
  absl::Status ShowWeights();
  // All clients' gradients have been added.
  absl::Status TakeSums();
  absl::Status Pull(int32_t side_op);
  absl::Status Push(int32_t side_op, const std::vector<float>& gradients);
  // The pass has run: forgets what others own.
  absl::Status Reshard(Pass pass);
  const std::vector<OwnerMemory*>& owners() const { return owner_memories_; }
  absl::Status Synchronize(const char* what);
  absl::Status CopyOut(const void* from, size_t bytes, Payload* payload);
  // The same of fp32 values.
  absl::Status CopyFloats(const float* from, int64_t count, Payload* payload) {
    return CopyOut(from, static_cast<size_t>(count) * 4, payload);
  }
  absl::Status Failed(PwStatus status, const char* what) const {
    return KernelStatus(*handle_.kernels, status, what);
  }

  const Program& program_;
  const Address self_;
  const ExecutedModel& model_;
  const WorkerOptions options_;
  const Units units_;
  const StepMicrobatches microbatches_;
  const double tokens_;          // in a step
  std::vector<int> unit_of_op_;  // [side op], -1
  DeviceHandle handle_;
  PwEvent* begin_ = nullptr;
  PwEvent* end_ = nullptr;
  std::shared_ptr<PwDevice> device_;
  std::shared_ptr<MemoryPool> arena_;
  std::shared_ptr<MemoryPool> host_;
  std::map<StageKey, std::unique_ptr<Stage>> stages_;
  std::map<InputKey, Payload> inputs_;
  std::map<InputKey, Payload> outputs_;
  HostCopy TakeIssued(Pass pass);
  std::map<uint64_t, HostCopy> issued_;  // by bits of O or L, until they run
  // How often the forward of each (stage, replica, microbatch, slice) has run:
  // the iteration that its data is of.
  std::map<std::tuple<int, int, int, int>, int> forwards_;
  std::map<std::tuple<int, int, int, int>, int> forwards_of_false_start_;
  Payload stand_in_;  // for what others would send
  bool steps_weights_ = false;
  bool holds_ = false;
  std::array<PwStream*, 2> copy_streams_{};  // [CopyEngine::Direction]
  Start start_;
  int64_t steps_ = 0;  // that the optimizer has taken
  NormState above_;    // from the ranks above, as they say
  NormState partial_;  // with that of this rank
  NormState full_;     // over all ranks
  bool has_partial_ = false;
  // Gradients are those of a step that has been taken: the next backward
  // begins anew.
  std::map<StageKey, bool> stale_;
  std::map<StageKey, std::vector<float>> shard_sums_;  // reduced so far
  std::set<StageKey> not_assembled_;  // whose gradients lack their sums
  absl::Status failed_;               // in a function that cannot say so itself
  // [replica of the schedule]: bytes of one microbatch, see WorkerRecord.
  std::vector<double> microbatch_bytes_;
  WorkerRecord record_;
  std::unique_ptr<CopyEngine> copies_;
  // Memories of this rank's replicas, [replica]; empty without owners.
  std::vector<OwnerMemory*> owner_memories_;
  std::map<int, int> place_of_unit_;  // among the rank's units
  // What a forward has gathered stays until the backward has run.
  bool keeps_gathered_ = false;
  std::unique_ptr<OwnerService> service_;
  std::atomic<bool> ends_{false};             // nobody needs what is under way
  std::unique_ptr<HostOptimizer> host_step_;  // null: states are on the device
  bool stepping_ = false;  // what waits for the norm has begun
  // What runs beside compute where time is real.
  struct Beside {
    PwStream* stream = nullptr;
    std::unique_ptr<WorkThread> thread;
  };
  Beside& BesideOf(int32_t side_op);
  std::map<Stream, Beside> beside_;
};

}  // namespace pipewright
