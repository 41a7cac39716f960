// Turns of copies on one direction of a PCIe switch, from when each copy can
// begin and must have ended. sim/config/copy_turns.h says
// what they are for.
#pragma once

#include <cstdint>
#include <vector>

namespace pipewright {

// A copy of one direction; `rank` counts those of the switch.
struct TurnJob {
  int rank = 0;
  int64_t position = 0;  // in the order of the rank
  double ready_s = 0;
  double due_s = 0;
  double takes_s = 0;
  double done_s = 0;  // where no other rank is on the switch
};

// `jobs` of each rank, each in its order; all of them in the order of their
// turns. `hand_over_s`: from the end of a copy to the begin of another rank's.
// Of two ranks the best turns, as long as the product of their copies is at
// most 1e7; else time and memory would have no end, and the one that is due
// first goes first, as of more ranks.
std::vector<TurnJob> DealTurns(const std::vector<std::vector<TurnJob>>& jobs,
                               double hand_over_s);

}  // namespace pipewright
