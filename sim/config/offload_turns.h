// Turns of copies on PCIe switches, for LowerRun.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sim/config/prepare.h"

namespace pipewright {

struct Program;

// With strategy.offload_sharing in-turn, and one order of passes: whose copy is
// next on each switch is settled before the run (sim/config/copy_turns.h).
absl::Status SettleCopyTurns(const PreparedRun& run, Program* program);

// Says so where they could not be settled.
void WarnOfDroppedTurns(const Program& program,
                        std::vector<std::string>* warnings);

}  // namespace pipewright
