// One pipeline stage on one device: its parts' weights, gradients and
// optimizer state, and the activations of the microbatches under way. It does
// what it is told and knows neither ranks nor order.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/train/executed_model.h"
#include "execute/train/memory_pool.h"
#include "sim/schedule/pass.h"

namespace pipewright {

struct DeviceHandle {
  const PwKernels* kernels = nullptr;
  PwDevice* device = nullptr;
  PwStream* stream = nullptr;  // compute
};

// The copy of an O or L: blocks that it alone writes or frees until it has run.
struct HostCopy {
  struct Block {
    Payload from;
    Payload to;
  };
  bool out = false;  // to the host
  std::vector<Block> blocks;

  // Any thread; has ended when it returns.
  absl::Status Run(const DeviceHandle& handle, PwStream* stream) const;
};

class Stage {
 public:
  // (microbatch, slice).
  using Key = std::pair<int, int>;

  // Where master weights and moments are: with kElsewhere the stage has the
  // first of them only until ReleaseMaster, and no step is taken here
  // (host_optimizer.h).
  enum class States { kHere, kElsewhere };

  // With random weights. `arena` and `host`, of pinned memory, must outlive
  // it.
  static absl::StatusOr<std::unique_ptr<Stage>> Create(
      const ExecutedModel& model, int stage, DeviceHandle handle,
      MemoryPool* arena, MemoryPool* host, States states = States::kHere);
  void ReleaseMaster();

  // Lets the head of a tied model here read the table of `owner`, a stage of
  // the same rank, which must outlive it, and add to its gradients.
  void ShareTable(Stage* owner) { table_owner_ = owner; }
  bool shares_table() const { return table_owner_ != nullptr; }
  // Gradients of a tied model's table, or of its copy, that is this stage's
  // own, [model.TableElements()]; null: it has none.
  float* table_gradients() {
    return model_.shape.tied == 0 || table_ < 0 ? nullptr : gradients_ + table_;
  }
  // Parameters that the norm of all gradients counts: not a copy, which is
  // behind them.
  int64_t counted() const { return counted_; }

  // Uses the scratch memory of `other`, which has at least as much, in place of
  // its own: no passes of the two run at a time, and one of them at most has
  // the head.
  void ShareScratch(const Stage& other) {
    workspace_ = other.workspace_;
    targets_ = other.targets_;
    token_losses_ = other.token_losses_;
  }
  size_t workspace_bytes() const { return workspace_.bytes; }

  bool first() const { return parts_.front().spec.part == PW_EMBEDDING; }
  bool last() const { return parts_.back().spec.part == PW_HEAD; }

  // `sample` names the tokens; `input` is empty on the first stage. Keeps what
  // the backward needs. *output stays empty on the last stage. `behind`: how
  // many steps older than the newest the weights are, at most
  // model.weight_delay. `again`: keeps no more than its input, to run again
  // from; so always with model.recompute.
  absl::Status Forward(Key key, int64_t sample, int behind, bool again,
                       Payload input, Payload* output);
  // Once more, from the input that was kept.
  absl::Status Recompute(Key key);
  // `gradient` of the output is empty on the last stage; *input_gradient stays
  // empty on the first. `loss_scale`: of the sum of the losses of tokens.
  absl::Status BackwardInput(Key key, Payload gradient, float loss_scale,
                             Payload* input_gradient);
  absl::Status BackwardWeight(Key key);
  absl::Status BackwardFull(Key key, Payload gradient, float loss_scale,
                            Payload* input_gradient);

  // Activations to the host and back. An O or an L takes the memory that its
  // copy fills. FreeOffloaded gives that on the device back, behind the O's
  // copy; the pass that reads the activations again gives that on the host
  // back.
  absl::StatusOr<HostCopy> BeginOffload(Key key);
  absl::Status FreeOffloaded(Key key);
  absl::StatusOr<HostCopy> BeginLoad(Key key);
  // Sizes of the blocks that a copy moves. `again`, here and below: of a
  // forward that runs again.
  std::vector<size_t> CopiedBlocks(bool again) const;
  // The sender's memory, not the rank's own, holds what R begins from, until it
  // is offloaded.
  bool KeepsInputOfOthers(bool again) const { return again && !first(); }

  // Bytes on the device that passes have left for other passes, of all
  // microbatches: activations, gradients for W, caches of slices. What is on
  // its way to the host or back counts.
  size_t HeldBytes() const;
  // What a forward leaves of them.
  size_t ForwardBytes(bool again) const;
  // What one slice of a microbatch leaves of them behind its R and its B, where
  // they are among `kinds`; else 0.
  std::array<size_t, 2> SliceBytes(const std::set<PassKind>& kinds) const;
  size_t CacheBytes() const;  // bytes a microbatch

  // Forgets the activations of all microbatches.
  void DropActivations();

  // What a pass takes of the arena and gives back, block by block in its order,
  // as {bytes, +1 or -1}: what it keeps for other passes, not what it passes
  // on.
  std::vector<std::pair<size_t, int>> BlocksOf(PassKind kind, int slice,
                                               bool again) const;

  // Bytes of a set of weights with its fp8 copies.
  size_t WeightBytes() const {
    return model_.WeightBytes(parameters_) + quantized_bytes_;
  }

  int64_t parameters() const { return parameters_; }
  // [parameters], parts in their order.
  float* master() { return master_; }
  float* gradients() { return gradients_; }
  float* moment1() { return moment1_; }
  float* moment2() { return moment2_; }
  // What replicas give each other of parameters [begin, end): master weights,
  // or, where those are elsewhere, the weights that passes use.
  struct Shared {
    void* data = nullptr;
    size_t bytes = 0;
  };
  Shared SharedOf(int64_t begin, int64_t end);
  // What others have given, SharedOf(begin, end).bytes of it.
  absl::Status TakeShared(int64_t begin, int64_t end, const void* from);
  // The weights that passes use have been written from outside.
  absl::Status FinishWeights() { return Quantize(weights_); }
  // AdamW on [begin, end), with gradients times `scale`, and the weights that
  // passes use from now on. A forward under way keeps those it has used.
  absl::Status Step(int64_t step, float scale, int64_t begin, int64_t end);
  // The master's values become the weights that passes use. Nothing to do
  // where the master is elsewhere.
  absl::Status Publish(int64_t begin, int64_t end);
  // Zeroes the master, where it is here, and the weights outside of [begin,
  // end).
  absl::Status ForgetOthers(int64_t begin, int64_t end);
  // Weights that the optimizer is expected to have made after `steps` more
  // steps with the moments as they are: what forwards use until the next
  // Publish or Step.
  absl::Status Predict(int64_t step, int steps);
  absl::Status ZeroGradients();
  // {sum of squares, number of values that are not finite} of the gradients.
  absl::Status SquareSum(int64_t begin, int64_t end, double result[2]);
  // A copy of master and moments, and back.
  absl::Status Save();
  absl::Status Restore();

  // Sum over tokens, of the microbatches whose head has run since the last
  // call; nats.
  // After a forward of the last stage, once the stream has ended: takes its
  // losses. Nothing to do after any other pass.
  void TakeLosses();
  const std::map<Key, double>& losses() const { return losses_; }
  void ForgetLosses() { losses_.clear(); }

 private:
  // What the kernels run at a time, and where it lies: its first token among
  // the microbatch's, its bytes in the blocks of a part.
  struct Place {
    PwWork work;
    int64_t token = 0;
    size_t saved = 0;
    size_t inputs = 0;
    size_t grads = 0;
  };
  struct Part {
    StagePart spec;
    int64_t offset = 0;    // elements into the stage's parameters
    PwPartSize size{};     // for the largest microbatch
    size_t quantized = 0;  // bytes into the stage's fp8 copies
    // [slice], or of packed samples [microbatch of an iteration].
    std::vector<std::vector<Place>> places;
  };
  struct PartBlocks {
    Payload saved;
    Payload inputs;
    Payload grads;
  };
  struct Activations {
    int64_t sample = 0;
    // To run the forward again from; of the first stage the tokens, which the
    // embedding's gradient needs too.
    Payload input;
    Payload weights;  // that the forward has used
    std::vector<PartBlocks> parts;
    bool runs_again = false;  // and has not yet
    // Blocks from their O to the pass that needs them again.
    struct Offloaded {
      Payload* block = nullptr;
      Payload host;
      Payload loaded;  // by an L
    };
    std::vector<Offloaded> offloaded;

    size_t DeviceBytes() const;
  };

  Stage(const ExecutedModel& model, DeviceHandle handle, MemoryPool* arena,
        MemoryPool* host, States states)
      : model_(model),
        handle_(handle),
        arena_(*arena),
        host_(*host),
        elsewhere_(states == States::kElsewhere) {}
  absl::Status Initialize(int stage);
  absl::Status LayOut(Part* part, size_t* workspace);
  const std::vector<Place>& PlacesOf(const Part& part, int64_t sample,
                                     int slice) const {
    return part
        .places[model_.lengths.empty() ? slice : sample % part.places.size()];
  }
  // Rows of an activation at `place`; null if there is none.
  void* RowsOf(const Payload& activation, const Place& place) const {
    if (activation.data == nullptr) return nullptr;
    return static_cast<char*>(activation.data.get()) +
           static_cast<size_t>(place.token * model_.shape.hidden) *
               model_.type_bytes();
  }
  absl::StatusOr<float*> NewFloats();
  absl::Status InitializeCopyOfTable();
  absl::StatusOr<std::shared_ptr<void>> NewPinned(size_t bytes);
  absl::Status FillIds(int64_t sample, int slice, bool targets,
                       const Payload& ids);
  size_t IdsBytes() const { return static_cast<size_t>(tokens()) * 4; }
  // Bytes of a slice that are kept to recompute from, and that a backward needs
  // in all.
  size_t InputBytes(bool again) const;
  size_t WholeBytes() const;
  absl::Status Convert(const float* from, const Payload& weights, int64_t begin,
                       int64_t end);
  absl::Status Quantize(const Payload& weights);
  absl::Status CopyFloats(const float* from, float* to);
  absl::Status RunForward(Key key, Activations& activations, bool keep,
                          Payload* output);
  enum class Backward { kInput, kFull };
  absl::Status RunBackward(Key key, Backward kind, Payload gradient,
                           float loss_scale, Payload* input_gradient);
  PwPartMemory MemoryOf(const Part& part, PartBlocks& blocks, int microbatch,
                        const Activations& activations, const Payload& weights,
                        const Place& place);
  absl::Status Check(PwStatus status, const char* what) const {
    return KernelStatus(*handle_.kernels, status, what);
  }
  int64_t tokens() const { return model_.batch * model_.slice_tokens(); }

  const ExecutedModel& model_;
  const DeviceHandle handle_;
  MemoryPool& arena_;
  MemoryPool& host_;
  const bool elsewhere_;  // the optimizer's states
  std::vector<Part> parts_;
  int64_t parameters_ = 0;
  int64_t counted_ = 0;
  int64_t table_ = -1;  // parameter at which the table or a copy begins
  Stage* table_owner_ = nullptr;
  size_t quantized_bytes_ = 0;  // all parts' fp8 copies
  std::vector<Payload> owned_;
  Payload initial_;  // the master's memory until ReleaseMaster
  float* master_ = nullptr;
  float* gradients_ = nullptr;
  float* moment1_ = nullptr;
  float* moment2_ = nullptr;
  float* saved_master_ = nullptr;
  float* saved_moment1_ = nullptr;
  float* saved_moment2_ = nullptr;
  Payload weights_;            // in the model's type, what the next pass uses
  Payload predicted_;          // instead, by forwards; may be empty
  std::deque<Payload> older_;  // weights of the steps before, the newest behind
  Payload workspace_;          // for any pass
  Payload targets_;
  Payload token_losses_;
  Payload sums_;
  // Pinned, so that no copy waits for what is queued before it: a pass may be
  // queued behind a held stream (WorkerDevice::Timed).
  std::shared_ptr<void> host_ids_;      // int32 [tokens]
  std::shared_ptr<void> host_targets_;  // the same
  std::shared_ptr<void> host_losses_;   // float [tokens]
  // Whose losses are on their way there.
  std::optional<Key> pending_losses_;
  int64_t pending_tokens_ = 0;  // that they are of
  Activations& Find(Key key);
  // What an L has brought is what passes read; the host's memory goes back.
  absl::Status TakeLoaded(Activations& activations);

  std::map<Key, Activations> activations_;
  std::map<std::pair<int, size_t>, Payload> caches_;  // microbatch, part
  std::map<int, int> slices_left_;                    // in a cached microbatch
  std::map<Key, double> losses_;
};

}  // namespace pipewright
