// Whose copy is next on a PCIe switch that ranks share: tokens that the ranks
// hand each other, so that no copy goes first only because it could begin
// first.
//
// A plan of copies (activation_plan.h) has booked its turns. Of a file's orders
// they are dealt out: an order tells when a copy can begin, where it stands,
// and when it must have ended: an O at its FREE, an L at the pass that reads.
// Of two ranks the turns are those with the least delay, of more, or of very
// many copies, the one that is due first goes first.
//
// Ranks never wait in a circle: a plan's turns are in the order of times at
// which all passes and copies can run. Turns that are dealt out follow a run
// without shared switches: what has ended there before another copy begins
// keeps its turn before it, since the other may wait for it.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "sim/program/activation_plan.h"

namespace pipewright {

struct DpClass;
struct Program;

struct SwitchCopies {
  std::vector<int> ranks;  // on one switch
  // [stage] one copy to the host and back, that nobody else is beside.
  std::vector<double> out_s;
  std::vector<double> in_s;
  SwitchTurns planned;  // empty: nothing was planned
};

// Puts turns on each switch into `program`, whose schedule has O and L. Left as
// it is, but for turns_dropped, where an iteration begins twice, and where
// ranks would wait in a circle for other reasons, such as hops that wait for
// their receivers. Error: as EarliestTimes.
absl::Status HandTurns(const std::vector<SwitchCopies>& switches,
                       Program* program);

// The same program without the tokens of HandTurns.
void DropTurns(DpClass* own);

// What a token takes from one of these ranks to another.
double HandOverSeconds(const Program& program, const std::vector<int>& ranks);

}  // namespace pipewright
