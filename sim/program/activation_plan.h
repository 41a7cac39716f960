// Which activations go to the host and when: puts O, FREE and L into the orders
// of a schedule so that no pass has to wait for a copy.
//
// Rule of PipeOffload (arXiv 2503.01328, section 4): those that live longest go
// first. The plan is made against the times that passes have without copies,
// for each rank or for the ranks that share a PCIe switch. A copy has its
// direction to itself; an O begins when its forward has ended, an L ends before
// the pass that needs it. Of several sets and orders that fit, the one with the
// lowest peak is taken.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

struct Program;

// What may go.
struct OffloadChoice {
  // True for half of a rank's chunks, those that live longest; with a single
  // chunk, for half of its activations. Not both fields below are given.
  bool half = false;
  std::vector<int64_t> chunks;  // on every rank; empty: all
  double fraction = 1;          // share of a rank's, the longest-lived
};

// Times and sizes of one microbatch through one stage, [stage].
struct OffloadCosts {
  std::vector<double> out_s;
  std::vector<double> in_s;
  // While nothing is copied the other way by the ranks that are planned
  // together; empty: as above.
  std::vector<double> out_alone_s;
  std::vector<double> in_alone_s;
  // What its activations weigh against those of other stages: bytes, or 1.
  std::vector<double> weight;
  std::vector<double> moved;     // part of it that copies take; empty: all
  double held_until_weight = 1;  // as PassCosts
  // In the unit of `weight`, what a split B leaves to its W, which can be more
  // than a forward leaves; empty: held_until_weight of `weight`.
  std::vector<double> until_weight;
  // Ranks with the same number take turns on a PCIe switch; empty: each rank
  // has both directions to itself.
  std::vector<int> switch_of_rank;
};

struct RankOffload {
  int64_t activations = 0;  // in an iteration
  int64_t candidates = 0;   // that the choice names
  int64_t offloaded = 0;    // that also fit
  // Peaks of activations on the device, in the unit of `weight`.
  double peak_before = 0;
  double peak_after = 0;
};

// An O or L and the rank that has it in its order.
struct PlannedTurn {
  int rank = 0;
  Pass pass;
};

// The copies of ranks that share a switch, in the order in which they are
// booked. Everything that one of them waits for is booked before it.
struct SwitchTurns {
  std::vector<PlannedTurn> out;
  std::vector<PlannedTurn> in;
};

struct OffloadPlan {
  std::shared_ptr<const Schedule> schedule;
  std::vector<RankOffload> ranks;
  // By the number in `switch_of_rank`, where several ranks have it.
  std::map<int, SwitchTurns> turns;
};

// `program` is lowered from `schedule`, which has no O and no L; only its
// passes and transfers count. Time O(passes * log(passes)) with a factor that
// falls as passes grow. Errors: kFailedPrecondition when the ranks wait for
// each other, kInternal when those of the plan would.
absl::StatusOr<OffloadPlan> PlanOffload(
    std::shared_ptr<const Schedule> schedule, const Program& program,
    const OffloadChoice& choice, const OffloadCosts& costs);

// Puts a FREE behind every O that has none, in front of the first pass that
// begins when the copy has ended.
absl::StatusOr<std::shared_ptr<const Schedule>> WithFrees(
    std::shared_ptr<const Schedule> schedule, const Program& program,
    const OffloadCosts& costs);

}  // namespace pipewright
