// What a worker's passes hold: reserved before the run, recorded in it.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "execute/train/model_worker.h"
#include "sim/base/status.h"

namespace pipewright {

// In an order without FREE an O gives back when its copy ends: a block may be
// needed that nothing has foretold.
ModelWorker::HeldBlocks ModelWorker::MostHeld() const {
  HeldBlocks most;
  HeldBlocks now;
  const RankOrder& order = *rank().order;
  const bool own_recompute = HasKind(order, PassKind::kRecompute);
  const bool frees = HasKind(order, PassKind::kFree);
  const auto change = [&](std::map<size_t, int> HeldBlocks::*pool, size_t bytes,
                          int by) {
    const int count = (now.*pool)[bytes] += by;
    (most.*pool)[bytes] = std::max((most.*pool)[bytes], count);
  };
  const auto run = [&](const Stage& stage, PassKind kind, int slice) {
    for (const auto& [bytes, by] : stage.BlocksOf(kind, slice)) {
      change(&HeldBlocks::device, bytes, by);
    }
  };
  const auto move = [&](const Stage& stage,
                        std::map<size_t, int> HeldBlocks::*pool, int by) {
    for (const size_t bytes : stage.CopiedBlocks()) change(pool, bytes, by);
    // Inputs of others are in none of BlocksOf.
    if (pool == &HeldBlocks::device && by < 0 && stage.KeepsInputOfOthers()) {
      change(pool, model_.BoundaryBytes(), -by);
    }
  };
  std::set<uint64_t> loaded;  // and not used yet
  for (const Pass pass : order) {
    if (pass.kind() == PassKind::kSync) continue;
    const Stage& stage = *stages_.at({UnitOf(pass), pass.direction()});
    if (pass.kind() == PassKind::kOffload) move(stage, &HeldBlocks::host, 1);
    if (pass.kind() == (frees ? PassKind::kFree : PassKind::kOffload)) {
      move(stage, &HeldBlocks::device, -1);
    }
    if (pass.kind() == PassKind::kLoad) {
      move(stage, &HeldBlocks::device, 1);
      loaded.insert(pass.activation());
    }
    const bool reads =
        ReadsActivations(pass.kind()) && loaded.erase(pass.activation()) > 0;
    if (reads) move(stage, &HeldBlocks::host, -1);
    if (model_.recompute && IsBackward(pass.kind()) && !own_recompute) {
      run(stage, PassKind::kRecompute, pass.slice());
    }
    run(stage, pass.kind(), pass.slice());
    if (reads && stage.KeepsInputOfOthers()) {
      change(&HeldBlocks::device, model_.BoundaryBytes(), -1);
    }
  }
  return most;
}

// The first pass that needs a block would be timed with its making.
absl::Status ModelWorker::ReserveBlocks() {
  HeldBlocks held = MostHeld();
  std::map<size_t, int>& blocks = held.device;
  if (model_.keeps_versions) {
    // Beside those there are: older ones, and those that a step makes.
    for (const auto& [key, stage] : stages_) {
      blocks[stage->WeightBytes()] += model_.weight_delay + 1;
    }
  }
  arena_->Settle();
  for (const auto& [bytes, count] : blocks) {
    PW_RETURN_IF_ERROR(arena_->Reserve(bytes, count));
  }
  for (const auto& [bytes, count] : held.host) {
    PW_RETURN_IF_ERROR(host_->Reserve(bytes, count));
  }
  // Few runs need all of these at a time, so that none is to fail for them.
  const size_t boundary = model_.BoundaryBytes();
  const int outputs = ReservedOutputs(units_, own(), self_.rank, boundary);
  const absl::Status reserved =
      arena_->Reserve(boundary, blocks[boundary] + outputs);
  return absl::IsResourceExhausted(reserved) ? absl::OkStatus() : reserved;
}

void ModelWorker::MeasureMicrobatch() {
  std::set<PassKind> kinds;
  for (const Pass pass : own().schedule->order(self_.rank)) {
    kinds.insert(pass.kind());
  }
  microbatch_bytes_.assign(own().schedule->directions, 0);
  // Layers of a stage run one after the other: behind each pass it is that of
  // all of them. [stage of the schedule, replica]
  std::map<StageKey, std::array<size_t, 3>> slice_bytes;
  for (const auto& [key, stage] : stages_) {
    auto& of_stage = slice_bytes[{units_.StageOf(key.first), key.second}];
    const std::array<size_t, 3> own_bytes = stage->SliceBytes(kinds);
    for (size_t pass = 0; pass < own_bytes.size(); ++pass) {
      of_stage[pass] += own_bytes[pass];
    }
    microbatch_bytes_[key.second] += static_cast<double>(stage->CacheBytes());
  }
  for (const auto& [key, bytes] : slice_bytes) {
    const size_t most = *std::max_element(bytes.begin(), bytes.end());
    microbatch_bytes_[key.second] += static_cast<double>(model_.slices * most);
  }
}

double ModelWorker::HeldNow() const {
  double held = 0;
  for (const auto& [key, stage] : stages_) {
    held +=
        static_cast<double>(stage->HeldBytes()) / microbatch_bytes_[key.second];
  }
  return held;
}

// A pair allocates at its common start.
void ModelWorker::BeginBlock(const Pass* block, int parts) {
  record_.peak_bytes = std::max(record_.peak_bytes, arena_->ResetPeak());
  double held = HeldNow();
  for (int part = 0; part < parts; ++part) {
    if (block[part].kind() != PassKind::kForward) continue;
    const int replica = block[part].direction();
    const Stage& stage = StageOf(UnitOf(block[part]), replica);
    held +=
        static_cast<double>(stage.ForwardBytes()) / microbatch_bytes_[replica];
  }
  record_.peak_activations = std::max(record_.peak_activations, held);
}

void ModelWorker::EndBlock(const Pass*, int parts) {
  record_.peak_activations = std::max(record_.peak_activations, HeldNow());
  const size_t peak = arena_->ResetPeak();
  record_.peak_bytes = std::max(record_.peak_bytes, peak);
  // A pair is one operation: its first part stands at the pair's highest point.
  for (int part = 0; part < parts; ++part) {
    const size_t after = part + 1 < parts ? peak : arena_->used();
    record_.memory.push_back(
        {static_cast<double>(peak), static_cast<double>(after)});
  }
}

}  // namespace pipewright
