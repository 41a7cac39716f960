// Passes and what runs beside them in an EventRun, when they slow each other
// down: instead of one timer a thing with its end, a timer for its start
// (kBesideStart), and from there on as many as its pace changes
// (interference.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/engine/event_timers.h"
#include "sim/engine/interference.h"
#include "sim/program/program.h"

namespace pipewright {

class BesideEvents {
 public:
  // What runs: a block of a device, a transfer, a meeting, each by its number.
  enum class Of : uint8_t { kBlock, kTransfer, kMeeting };
  struct Owner {
    Of of = Of::kBlock;
    uint32_t index = 0;
  };
  struct Ended {
    Owner owner;
    double end_s = 0;
  };

  // `program` has an interference matrix.
  BesideEvents(const Program& program, EventTimers* timers);

  // A block of passes of `rank`, alone on the compute stream of a device, that
  // alone take `alone_s`.
  void StartBlock(int device, double start_s, const RankProgram& rank,
                  const Pass* block, const std::array<double, 2>& alone_s);
  // Something on `devices` beside their passes. Not `timed`: whoever knows its
  // end calls Leave.
  void Start(Owner owner, double start_s, double alone_s,
             Interference::Kind kind, std::vector<int> devices, bool timed);

  // Whose item it is, while it runs.
  Owner OwnerOf(uint32_t item) const { return owners_[item]; }
  // A timer kBesideEnd. Nothing: its pace has changed.
  std::optional<Ended> End(uint32_t item, uint32_t version);
  // Ends what has no timer here; nothing happens to what has ended.
  void Leave(Owner owner, double now_s);

 private:
  PassMix MixOfBlock(const RankProgram& rank, const Pass* block,
                     const std::array<double, 2>& alone_s) const;
  void Own(uint32_t item, Owner owner);
  void SetTimers();
  static uint64_t KeyOf(Owner owner) {
    return static_cast<uint64_t>(owner.of) << 32 | owner.index;
  }

  struct Timer {
    uint32_t item = 0;
    uint32_t version = 0;
    double end_s = 0;
  };

  const Program& program_;
  std::vector<Timer> to_set_;
  std::vector<double> expected_s_;  // [item] its end at its pace now
  std::vector<Owner> owners_;       // [item]
  absl::flat_hash_map<uint64_t, uint32_t> items_;  // by owner, while they run
  Interference running_;
  EventTimers& timers_;
};

}  // namespace pipewright
