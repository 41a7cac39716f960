// The live bytes of a rank as its order is walked. Internal to memory/: what it
// is for says schedule_memory.h.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "sim/memory/memory_framework.h"
#include "sim/memory/schedule_memory.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

class LiveMemory {
 public:
  // All must outlive this.
  LiveMemory(const Schedule& schedule, const ScheduleMemory& memory,
             const MemoryFramework& framework, int rank);

  int StageOf(Pass pass) const {
    return schedule_.placement.StageOf(rank_, pass.chunk(), pass.direction());
  }
  // The pass's own highest point; null where it has none.
  const PassMemory* Peak(Pass pass) const {
    const Lane& lane = LaneOf(pass);
    return PeakOf(pass.kind(), *lane.stage, lane.has_recompute);
  }

  void Begin(Pass pass);
  void End(Pass pass);
  // What waits for its transfer until the block of the pass is over.
  int64_t SentBytes(Pass pass) const;

  int64_t total() const { return activations + recomputed + handed_over; }
  // Held between passes, in microbatches through all stages of the rank.
  double Microbatches() const;
  // The same of what a forward is about to hold.
  double Microbatches(Pass forward) const;

  int64_t activations = 0;
  int64_t recomputed = 0;
  int64_t handed_over = 0;
  int64_t on_host = 0;

 private:
  // What the passes of a chunk and direction are of.
  struct Lane {
    const StageMemory* stage;
    bool has_recompute;
  };

  const Lane& LaneOf(Pass pass) const {
    return lanes_[pass.direction() * vpp_ + pass.chunk()];
  }
  const StageMemory& MemoryOf(Pass pass) const { return *LaneOf(pass).stage; }
  void Hold(Pass pass, int64_t bytes) {
    if (bytes == 0) return;
    activations += bytes;
    held_[pass.direction()] += bytes;
    stale_ = true;
  }
  // The stage that the pass has its input from (-1) or gives its output to
  // (+1); below 0: none.
  int NeighbourOf(Pass pass, int direction) const;
  bool GivenHere(Pass pass, int direction) const;
  static std::vector<Lane> LanesOf(const Schedule& schedule,
                                   const ScheduleMemory& memory, int rank);
  // [replica]: the most that one microbatch holds between two of its passes.
  std::vector<int64_t> MicrobatchBytes() const;

  const Schedule& schedule_;
  const bool hands_over_;
  const int rank_;
  const int vpp_;
  const std::vector<Lane> lanes_;  // [direction * vpp + chunk]
  absl::flat_hash_set<uint64_t> away_;
  absl::flat_hash_set<uint64_t> loaded_;   // and not used yet
  std::vector<int64_t> held_;              // [replica], with what is recomputed
  const std::vector<int64_t> microbatch_;  // [replica]
  // Microbatches(), as long as nothing has changed.
  mutable bool stale_ = true;
  mutable double microbatches_ = 0;
};

}  // namespace pipewright
