#include "sim/memory/live_memory.h"

#include <algorithm>
#include <cstddef>

namespace pipewright {

LiveMemory::LiveMemory(const Schedule& schedule, const ScheduleMemory& memory,
                       const MemoryFramework& framework, int rank)
    : schedule_(schedule),
      hands_over_(framework.hands_over),
      rank_(rank),
      vpp_(schedule.vpp()),
      lanes_(LanesOf(schedule, memory, rank)),
      held_(schedule.directions),
      microbatch_(MicrobatchBytes()) {}

std::vector<LiveMemory::Lane> LiveMemory::LanesOf(const Schedule& schedule,
                                                  const ScheduleMemory& memory,
                                                  int rank) {
  const std::vector<bool> recompute = ChunksWithRecompute(schedule, rank);
  std::vector<Lane> lanes;
  for (int direction = 0; direction < schedule.directions; ++direction) {
    for (int chunk = 0; chunk < schedule.vpp(); ++chunk) {
      const int stage = schedule.placement.StageOf(rank, chunk, direction);
      lanes.push_back({memory.stages[stage].get(), recompute[lanes.size()]});
    }
  }
  return lanes;
}

void LiveMemory::Begin(Pass pass) {
  const StageMemory& stage = MemoryOf(pass);
  if (pass.kind() == PassKind::kForward && pass.slice() == 0) {
    Hold(pass, stage.per_microbatch);
  }
  if (GivenHere(pass, -1)) handed_over -= stage.boundary;
  if (!loaded_.empty() && ReadsActivations(pass.kind()) &&
      loaded_.erase(pass.activation()) > 0) {
    on_host -= stage.away;
  }
}

void LiveMemory::End(Pass pass) {
  const StageMemory& stage = MemoryOf(pass);
  // FREE gives the device's memory back, O alone does not.
  if (pass.kind() == PassKind::kOffload) {
    on_host += stage.away;
    return;
  }
  if (pass.kind() == PassKind::kFree) away_.insert(pass.activation());
  if (pass.kind() == PassKind::kLoad) {
    loaded_.insert(pass.activation());
    if (away_.erase(pass.activation()) == 0) return;
  }
  const PassChange change =
      ChangeOf(pass.kind(), stage, LaneOf(pass).has_recompute);
  Hold(pass, change.activations);
  if (change.recomputed != 0) {
    held_[pass.direction()] += change.recomputed;
    recomputed += change.recomputed;
    stale_ = true;
  }
  if (IsBackward(pass.kind()) && pass.slice() == 0) {
    Hold(pass, -stage.per_microbatch);
  }
  if (GivenHere(pass, +1)) handed_over += stage.boundary;
}

int64_t LiveMemory::SentBytes(Pass pass) const {
  if (!hands_over_) return 0;
  const int other = NeighbourOf(pass, +1);
  const bool sends = other >= 0 && schedule_.placement.RankOf(
                                       other, pass.direction()) != rank_;
  return sends ? MemoryOf(pass).boundary : 0;
}

double LiveMemory::Microbatches() const {
  if (!stale_) return microbatches_;
  double sum = 0;
  for (size_t replica = 0; replica < held_.size(); ++replica) {
    if (microbatch_[replica] == 0) continue;
    sum += static_cast<double>(held_[replica]) /
           static_cast<double>(microbatch_[replica]);
  }
  stale_ = false;
  microbatches_ = sum;
  return sum;
}

double LiveMemory::Microbatches(Pass forward) const {
  const int64_t microbatch = microbatch_[forward.direction()];
  return microbatch == 0 ? 0
                         : static_cast<double>(MemoryOf(forward).kept) /
                               static_cast<double>(microbatch);
}

int LiveMemory::NeighbourOf(Pass pass, int direction) const {
  const bool forward = pass.kind() == PassKind::kForward;
  if (!forward && !IsBackward(pass.kind())) return -1;
  const int other = StageOf(pass) + (forward ? direction : -direction);
  return other < schedule_.stages() ? other : -1;
}

bool LiveMemory::GivenHere(Pass pass, int direction) const {
  if (!hands_over_) return false;
  const int other = NeighbourOf(pass, direction);
  return other >= 0 &&
         schedule_.placement.RankOf(other, pass.direction()) == rank_;
}

std::vector<int64_t> LiveMemory::MicrobatchBytes() const {
  std::vector<int64_t> bytes(schedule_.directions);
  std::vector<bool> splits(schedule_.directions * schedule_.vpp());
  for (const Pass pass : schedule_.order(rank_)) {
    if (pass.kind() != PassKind::kBackwardInput) continue;
    splits[pass.direction() * schedule_.vpp() + pass.chunk()] = true;
  }
  for (size_t index = 0; index < splits.size(); ++index) {
    const int replica = static_cast<int>(index) / schedule_.vpp();
    const StageMemory& stage = *lanes_[index].stage;
    int64_t most =
        stage.kept + (lanes_[index].has_recompute ? stage.recomputed : 0);
    if (splits[index]) most = std::max(most, stage.weight_part);
    bytes[replica] += schedule_.slices * most + stage.per_microbatch;
  }
  return bytes;
}

}  // namespace pipewright
