// A schedule: the order of passes of every rank. It has no times, no
// transfers, no devices. Orders are shared and immutable, so that directions of
// the pipeline and the Program that is lowered from it store none twice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/pass.h"
#include "sim/schedule/placement.h"

namespace pipewright {

using RankOrder = std::vector<Pass>;

// Is there a pass of `kind` in the order?
bool HasKind(const RankOrder& order, PassKind kind);

// What a backward of a stage needs besides its own forward.
enum class BackwardRule : uint8_t {
  kChain,  // the backward of the next stage: ordinary training
  kLocal,  // nothing: each stage has a loss of its own
  kNone,   // there is no backward: inference
};
// "chain", "local", "none".
absl::string_view BackwardRuleName(BackwardRule rule);

// Empty time steps in front of what a rank runs as its `action`-th, from 0 on.
// Each pass is one, but an R belongs to the pass behind it, and a block (X&Y)
// is one.
struct StepGap {
  int64_t action = 0;
  int64_t steps = 0;
  friend bool operator==(const StepGap&, const StepGap&) = default;
};

struct Schedule;

// What a search for an order says of the one it found. Times are in the unit of
// PlanCosts, of the passes and hops alone.
struct FoundOrder {
  double time = 0;        // what it takes
  double least_time = 0;  // proved: no order of its class takes less
  bool is_whole = false;  // from the first start to the last end on any rank;
                          // else of the rank that takes longest
  std::string start;      // the schedule or pattern it was made from
  double start_time = 0;  // what that takes
  int64_t steps = 0;      // orders that were timed
  bool is_cut = false;    // ScheduleParams::stops ended it early
  // Start with the same passes; null if nobody kept it.
  std::shared_ptr<const Schedule> from;

  // Part of the time that might be saved at most.
  double gap() const { return time > 0 ? 1 - least_time / time : 0; }
  friend bool operator==(const FoundOrder&, const FoundOrder&) = default;
};

struct Schedule {
  std::string name;  // the path, where it was read from a file
  Placement placement = Placement::Plain(1);
  int microbatches = 0;  // in both directions together
  int slices = 1;
  // Microbatches whose passes of one chunk and direction make up a unit of
  // work, from the first on; 0: the schedule has no such units.
  int unit = 0;
  // 0: iterations are flushed, weights change between them. Else never: while
  // the last backwards of an iteration run, so do the first forwards of the
  // next, and every rank steps by itself after so many microbatches: all of
  // them (the forwards in between use weights one step old) or 1 (they use
  // weights predicted for their backward).
  int update_every = 0;
  int directions = 1;  // 2: bidirectional, direction b mirrors direction a
  BackwardRule backward = BackwardRule::kChain;
  std::vector<std::shared_ptr<const RankOrder>> orders;  // [rank]
  // Where the schedule leaves time steps empty that its passes do not need
  // (sim/program/time_steps.h): [rank], by action. Empty: nowhere.
  std::vector<std::vector<StepGap>> gaps;
  std::optional<FoundOrder> found;  // by a search
  // Line of each rank's order in the file `name`, for messages. Empty if the
  // schedule was built.
  std::vector<int> lines;

  int pp() const { return placement.pp(); }
  int vpp() const { return placement.vpp(); }
  int stages() const { return placement.stages(); }
  // Microbatches that one direction numbers 0..n-1.
  int microbatches_per_direction() const { return microbatches / directions; }
  const RankOrder& order(int rank) const { return *orders[rank]; }
  // Entries of all orders together, O, L and SYNC included.
  int64_t num_passes() const;
  // Is there a pass of `kind` on any rank?
  bool Has(PassKind kind) const;
};

// How one pass reads in messages, pictures and the text form: "F3", "bBW3.1".
// The direction's letter, chunk and slice appear only where the schedule has
// several.
std::string PassToString(const Schedule& schedule, Pass pass);

// Puts "FILE:LINE: " in front of what is wrong with the order of `rank`, where
// it was read from a file.
absl::Status AtOrder(const Schedule& schedule, int rank,
                     const absl::Status& status);

}  // namespace pipewright
