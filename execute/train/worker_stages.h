// The stages that one rank holds: of which unit and direction each is, and
// which part of it the rank's replica steps; and what their passes hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "execute/train/executed_model.h"
#include "execute/train/stage.h"
#include "execute/train/units.h"
#include "execute/train/worker_device.h"
#include "execute/train/worker_options.h"
#include "execute/transport/message.h"
#include "sim/trace/export.h"

namespace pipewright {

class WorkerStages {
 public:
  // Unit (Units) and direction in the schedule.
  using Key = std::pair<int, int>;

  // All must outlive it. `sharded_step`: WorkerOptions's.
  WorkerStages(const Program& program, Address self, const ExecutedModel& model,
               bool sharded_step);
  absl::Status Create(WorkerDevice& device, Stage::States states);

  const Program& program() const { return program_; }
  Address self() const { return self_; }
  const ExecutedModel& model() const { return model_; }
  const Units& units() const { return units_; }
  const DpClass& own() const { return own_; }
  const RankProgram& rank() const { return rank_; }
  const SideOp& op(int32_t side_op) const;

  const std::map<Key, std::unique_ptr<Stage>>& all() const { return stages_; }
  Stage& at(Key key) const { return *stages_.at(key); }
  // Unit of a pass of the rank's order, and its stage.
  int UnitOf(Pass pass) const;
  Stage& Of(Pass pass) const { return at({UnitOf(pass), pass.direction()}); }
  // Does an R make the activations of the pass again? And does anything, be it
  // the backward itself?
  bool HasR(Pass pass) const { return again_.contains(pass.activation()); }
  bool RunsAgain(Pass pass) const { return model_.recompute || HasR(pass); }
  // Unit of a side operation, -1: of none or of several.
  int UnitOfOp(int32_t side_op) const { return unit_of_op_[side_op]; }
  // Those that hold `unit` here: a middle rank of a bidirectional schedule may
  // hold both copies.
  std::vector<Stage*> OfUnit(int unit) const;

  bool sharded() const { return sharded_; }
  // Parameters [begin, end) that this replica steps: all without shards.
  std::pair<int64_t, int64_t> OwnShard(const Stage& stage) const;
  absl::Status ForgetOthers(Stage& stage) const;
  // With layers that are gathered for each pass: `pass` has run, and what
  // others own of its unit is forgotten.
  absl::Status Reshard(Pass pass) const;
  void DropActivations() const;

 private:
  // Layers of a stage use one workspace.
  void ShareScratch();

  const Program& program_;
  const Address self_;
  const ExecutedModel& model_;
  const bool sharded_;
  const DpClass& own_;
  const RankProgram& rank_;
  const Units units_;
  const std::vector<int> unit_of_op_;  // [side op], -1
  const absl::flat_hash_set<uint64_t> again_;
  // What a forward has gathered stays until the backward has run.
  bool keeps_gathered_ = false;
  std::map<Key, std::unique_ptr<Stage>> stages_;
};

// What the passes of a rank hold on its device: reserved before the run,
// watched in it. Bytes; activations in microbatches (WorkerRecord).
class WorkerMemory {
 public:
  // Both must outlive it.
  WorkerMemory(const WorkerStages& stages, const WorkerDevice& device)
      : stages_(stages), device_(device) {}

  // All is there that stays for the whole run.
  void Measure();
  // Makes the blocks that the passes of an iteration hold together, and those
  // of what they send.
  absl::Status Reserve();

  // Worker's.
  void BeginBlock(const Pass* block, int parts);
  void EndBlock(const Pass* block, int parts);
  // The stages hold more, or less.
  void Watch();

  // The run is over.
  void Tell(WorkerRecord* record);

 private:
  // [bytes]: blocks of activations at the same time.
  struct HeldBlocks {
    std::map<size_t, int> device;
    std::map<size_t, int> host;
  };
  HeldBlocks MostHeld() const;
  double HeldNow() const;

  const WorkerStages& stages_;
  const WorkerDevice& device_;
  // [replica of the schedule]: bytes of one microbatch.
  std::vector<double> microbatch_bytes_;
  size_t resident_bytes_ = 0;
  size_t peak_bytes_ = 0;
  double peak_activations_ = 0;
  std::vector<PassBytes> blocks_;
};

}  // namespace pipewright
