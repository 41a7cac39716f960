#include "execute/train/worker_stages.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "sim/base/status.h"
#include "sim/memory/activations.h"
#include "sim/program/program.h"

namespace pipewright {

WorkerStages::WorkerStages(const Program& program, Address self,
                           const ExecutedModel& model, bool sharded_step)
    : program_(program),
      self_(self),
      model_(model),
      sharded_(sharded_step),
      own_(program.OfReplica(self.replica)),
      rank_(own_.ranks[self.rank]),
      units_(program),
      unit_of_op_(units_.OfSideOps(rank_)),
      again_(RunAgain(*rank_.order)) {
  for (const LaneHook& hook : rank_.hooks) {
    keeps_gathered_ |= hook.fires == LaneHook::Fires::kUnlessKept;
  }
}

absl::Status WorkerStages::Create(WorkerDevice& device, Stage::States states) {
  for (int replica = 0; replica < own_.schedule->directions; ++replica) {
    for (const int unit : units_.OfRank(self_.rank, replica)) {
      PW_ASSIGN_OR_RETURN(
          (stages_[{unit, replica}]),
          Stage::Create(model_, unit, device.handle(), &device.memory(),
                        &device.host(), states));
    }
  }
  for (auto& [key, stage] : stages_) {
    const auto owner = stages_.find({0, key.second});
    if (model_.shape.tied != 0 && !model_.copies_table && key.first > 0 &&
        key.first + 1 == model_.num_stages() && owner != stages_.end()) {
      stage->ShareTable(owner->second.get());
    }
  }
  ShareScratch();
  if (rank_.layers.empty()) return absl::OkStatus();
  for (auto& [key, stage] : stages_) PW_RETURN_IF_ERROR(ForgetOthers(*stage));
  return absl::OkStatus();
}

void WorkerStages::ShareScratch() {
  std::map<Key, const Stage*> widest;  // [stage of the schedule, replica]
  for (const auto& [key, stage] : stages_) {
    const Stage*& most = widest[{units_.StageOf(key.first), key.second}];
    if (most == nullptr || stage->workspace_bytes() > most->workspace_bytes()) {
      most = stage.get();
    }
  }
  for (auto& [key, stage] : stages_) {
    const Stage* const most = widest[{units_.StageOf(key.first), key.second}];
    if (most != stage.get()) stage->ShareScratch(*most);
  }
}

const SideOp& WorkerStages::op(int32_t side_op) const {
  return rank_.side_ops[side_op];
}

int WorkerStages::UnitOf(Pass pass) const {
  return units_.Of(rank_, pass, rank_.lanes[pass.lane()].stage);
}

std::vector<Stage*> WorkerStages::OfUnit(int unit) const {
  std::vector<Stage*> found;
  for (auto& [key, stage] : stages_) {
    if (key.first == unit) found.push_back(stage.get());
  }
  return found;
}

std::pair<int64_t, int64_t> WorkerStages::OwnShard(const Stage& stage) const {
  if (!sharded_) return {0, stage.parameters()};
  return ShardRange(stage.parameters(), self_.replica, program_.replicas);
}

absl::Status WorkerStages::ForgetOthers(Stage& stage) const {
  const auto [begin, end] = OwnShard(stage);
  return stage.ForgetOthers(begin, end);
}

absl::Status WorkerStages::Reshard(Pass pass) const {
  if (rank_.layers.empty() || pass.kind() == PassKind::kBackwardWeight ||
      (keeps_gathered_ && !IsBackward(pass.kind()))) {
    return absl::OkStatus();
  }
  return ForgetOthers(Of(pass));
}

void WorkerStages::DropActivations() const {
  for (auto& [key, stage] : stages_) stage->DropActivations();
}

// In an order without FREE an O gives back when its copy ends: a block may be
// needed that nothing has foretold.
WorkerMemory::HeldBlocks WorkerMemory::MostHeld() const {
  HeldBlocks most;
  HeldBlocks now;
  const ExecutedModel& model = stages_.model();
  const RankOrder& order = *stages_.rank().order;
  const bool frees = HasKind(order, PassKind::kFree);
  const auto change = [&](std::map<size_t, int> HeldBlocks::*pool, size_t bytes,
                          int by) {
    const int count = (now.*pool)[bytes] += by;
    (most.*pool)[bytes] = std::max((most.*pool)[bytes], count);
  };
  const auto run = [&](const Stage& stage, PassKind kind, Pass pass) {
    for (const auto& [bytes, by] :
         stage.BlocksOf(kind, pass.slice(), stages_.RunsAgain(pass))) {
      change(&HeldBlocks::device, bytes, by);
    }
  };
  const auto move = [&](const Stage& stage, Pass pass,
                        std::map<size_t, int> HeldBlocks::*pool, int by) {
    const bool again = stages_.RunsAgain(pass);
    for (const size_t bytes : stage.CopiedBlocks(again)) {
      change(pool, bytes, by);
    }
    // Inputs of others are in none of BlocksOf.
    if (pool == &HeldBlocks::device && by < 0 &&
        stage.KeepsInputOfOthers(again)) {
      change(pool, model.BoundaryBytes(), -by);
    }
  };
  std::set<uint64_t> loaded;  // and not used yet
  for (const Pass pass : order) {
    if (pass.kind() == PassKind::kSync) continue;
    const Stage& stage = stages_.Of(pass);
    if (pass.kind() == PassKind::kOffload)
      move(stage, pass, &HeldBlocks::host, 1);
    if (pass.kind() == (frees ? PassKind::kFree : PassKind::kOffload)) {
      move(stage, pass, &HeldBlocks::device, -1);
    }
    if (pass.kind() == PassKind::kLoad) {
      move(stage, pass, &HeldBlocks::device, 1);
      loaded.insert(pass.activation());
    }
    const bool reads =
        ReadsActivations(pass.kind()) && loaded.erase(pass.activation()) > 0;
    if (reads) move(stage, pass, &HeldBlocks::host, -1);
    if (IsBackward(pass.kind()) && stages_.RunsAgain(pass) &&
        !stages_.HasR(pass)) {
      run(stage, PassKind::kRecompute, pass);
    }
    run(stage, pass.kind(), pass);
    if (reads && stage.KeepsInputOfOthers(stages_.RunsAgain(pass))) {
      change(&HeldBlocks::device, model.BoundaryBytes(), -1);
    }
  }
  return most;
}

// The first pass that needs a block would be timed with its making.
absl::Status WorkerMemory::Reserve() {
  const ExecutedModel& model = stages_.model();
  MemoryPool& memory = device_.memory();
  HeldBlocks held = MostHeld();
  std::map<size_t, int>& blocks = held.device;
  if (model.keeps_versions) {
    // Beside those there are: older ones, and those that a step makes.
    for (const auto& [key, stage] : stages_.all()) {
      blocks[stage->WeightBytes()] += model.weight_delay + 1;
    }
  }
  memory.Settle();
  for (const auto& [bytes, count] : blocks) {
    PW_RETURN_IF_ERROR(memory.Reserve(bytes, count));
  }
  for (const auto& [bytes, count] : held.host) {
    PW_RETURN_IF_ERROR(device_.host().Reserve(bytes, count));
  }
  // Few runs need all of these at a time, so that none is to fail for them.
  const size_t boundary = model.BoundaryBytes();
  const int outputs = ReservedOutputs(stages_.units(), stages_.own(),
                                      stages_.self().rank, boundary);
  const absl::Status reserved =
      memory.Reserve(boundary, blocks[boundary] + outputs);
  return absl::IsResourceExhausted(reserved) ? absl::OkStatus() : reserved;
}

void WorkerMemory::Measure() {
  resident_bytes_ = device_.memory().used();
  const Schedule& schedule = *stages_.own().schedule;
  // Kinds of passes, and whether any forward runs again, and any not.
  std::set<PassKind> kinds;
  std::set<bool> again;
  for (const Pass pass : schedule.order(stages_.self().rank)) {
    kinds.insert(pass.kind());
    if (pass.kind() == PassKind::kForward) {
      again.insert(stages_.RunsAgain(pass));
    }
  }
  microbatch_bytes_.assign(schedule.directions, 0);
  // Layers of a stage run one after the other: behind each pass it is that of
  // all of them. [stage of the schedule, replica]
  std::map<WorkerStages::Key, std::array<size_t, 4>> slice_bytes;
  for (const auto& [key, stage] : stages_.all()) {
    auto& of_stage =
        slice_bytes[{stages_.units().StageOf(key.first), key.second}];
    for (const bool each : again) of_stage[each] += stage->ForwardBytes(each);
    const std::array<size_t, 2> own_bytes = stage->SliceBytes(kinds);
    for (size_t pass = 0; pass < own_bytes.size(); ++pass) {
      of_stage[2 + pass] += own_bytes[pass];
    }
    microbatch_bytes_[key.second] += static_cast<double>(stage->CacheBytes());
  }
  for (const auto& [key, bytes] : slice_bytes) {
    const size_t most = *std::max_element(bytes.begin(), bytes.end());
    microbatch_bytes_[key.second] +=
        static_cast<double>(stages_.model().slices * most);
  }
}

double WorkerMemory::HeldNow() const {
  double held = 0;
  for (const auto& [key, stage] : stages_.all()) {
    held +=
        static_cast<double>(stage->HeldBytes()) / microbatch_bytes_[key.second];
  }
  return held;
}

void WorkerMemory::Watch() {
  peak_activations_ = std::max(peak_activations_, HeldNow());
}

// A pair allocates at its common start.
void WorkerMemory::BeginBlock(const Pass* block, int parts) {
  peak_bytes_ = std::max(peak_bytes_, device_.memory().ResetPeak());
  double held = HeldNow();
  for (int part = 0; part < parts; ++part) {
    if (block[part].kind() != PassKind::kForward) continue;
    const int replica = block[part].direction();
    const Stage& stage = stages_.Of(block[part]);
    held += static_cast<double>(
                stage.ForwardBytes(stages_.RunsAgain(block[part]))) /
            microbatch_bytes_[replica];
  }
  peak_activations_ = std::max(peak_activations_, held);
}

void WorkerMemory::EndBlock(const Pass*, int parts) {
  Watch();
  const size_t peak = device_.memory().ResetPeak();
  peak_bytes_ = std::max(peak_bytes_, peak);
  // A pair is one operation: its first part stands at the pair's highest point.
  for (int part = 0; part < parts; ++part) {
    const size_t after = part + 1 < parts ? peak : device_.memory().used();
    blocks_.push_back({static_cast<double>(peak), static_cast<double>(after)});
  }
}

void WorkerMemory::Tell(WorkerRecord* record) {
  record->resident_bytes = resident_bytes_;
  record->peak_bytes = std::max(peak_bytes_, device_.memory().peak());
  record->message_bytes = device_.memory().messages_peak();
  record->peak_host_bytes = device_.host().peak();
  record->peak_activations = peak_activations_;
  record->memory = std::move(blocks_);
}

}  // namespace pipewright
