// Memory of the ranks over the time of a run: the bytes of sim/memory, which
// follow from the order, at the times of a trace. Inside a pass the line
// stands at the pass's highest point; where ranks of the trace overlap passes
// on several streams, both add up.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "sim/memory/schedule_memory.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

// What one operation of a trace does to its rank's memory: `during` is there
// between its start and its end only, `at_start` and `at_end` stay.
struct MemoryEffect {
  MemoryBytes during;
  MemoryBytes at_start;
  MemoryBytes at_end;
};

// Effects of the operations of one program; knows which passes run again.
class MemoryEffects {
 public:
  // The program has a schedule, which `memory` is of: that of one of its
  // classes, as stages take the same in all. Both must stay.
  MemoryEffects(const Program& program, const ScheduleMemory& memory);

  // Nothing for operations other than passes, offloads and loads; nor for
  // offloads where FREE gives their memory back (FreesOf).
  MemoryEffect Of(const TraceOp& op) const;

 private:
  const Program& program_;
  const ScheduleMemory& memory_;
  // [class][rank] Activations that an R makes again.
  std::vector<std::vector<absl::flat_hash_set<uint64_t>>> recomputed_;
  std::vector<std::vector<bool>> frees_;  // [class][rank] the order has FREE
};

// The device's memory of offloaded activations, given back where compute has
// come to their FREE and their O has ended.
struct FreedMemory {
  int replica = 0;
  int iteration = 0;
  int rank = 0;
  double time_s = 0;
  int64_t activations = 0;  // below 0
};

// Frees of all replicas and iterations that `ops` tell of whole.
std::vector<FreedMemory> FreesOf(const Program& program,
                                 const ScheduleMemory& memory,
                                 const std::vector<const TraceOp*>& ops);

struct MemorySample {
  double time_s = 0;  // from here on, until the next one
  MemoryBytes bytes;
};

// [rank], of one data-parallel replica and iteration: a sample for each
// change, the first one at the first operation.
std::vector<std::vector<MemorySample>> MemoryOverTime(
    const Program& program, const ScheduleMemory& memory,
    const std::vector<TraceOp>& ops, int replica, int iteration);

}  // namespace pipewright
