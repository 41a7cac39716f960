// Whose copy is next on a PCIe switch that ranks share: the turns that a plan
// of copies has made with (activation_plan.h), or a file's orders allow, become
// tokens that the ranks hand each other. So no copy goes first only because it
// could begin first.
//
// An order tells when a copy can begin, where it stands, and when it must have
// ended: an O at its FREE, an L at the pass that reads. Of two ranks, turns are
// found in which every copy is in time wherever there are such; of more ranks
// the one that is due first goes first, which need not find them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "sim/program/program.h"

namespace pipewright {

// A copy of one direction; `rank` counts those of the switch.
struct TurnJob {
  int rank = 0;
  int64_t position = 0;  // in the order of the rank
  double ready_s = 0;
  double due_s = 0;
  double takes_s = 0;
};

// `jobs` of each rank, each in its order; all of them in the order of their
// turns. `hand_over_s`: from the end of a copy to the begin of another rank's.
std::vector<TurnJob> DealTurns(const std::vector<std::vector<TurnJob>>& jobs,
                               double hand_over_s);

struct SwitchCopies {
  std::vector<int> ranks;  // on one switch
  // [stage] one copy to the host and back, that nobody else is beside.
  std::vector<double> out_s;
  std::vector<double> in_s;
};

// Deals out turns on each switch and puts them into `program`, whose schedule
// has O and L. Left as it is where an iteration begins twice. Error: as
// EarliestTimes.
absl::Status HandTurns(const std::vector<SwitchCopies>& switches,
                       Program* program);

// The same program without the tokens of HandTurns.
void DropTurns(DpClass* own);

// What a token takes from one of these ranks to another.
double HandOverSeconds(const Program& program, const std::vector<int>& ranks);

}  // namespace pipewright
