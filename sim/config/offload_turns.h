// Turns of copies on PCIe switches, for LowerRun.
#pragma once

#include "absl/status/status.h"
#include "sim/config/prepare.h"
#include "sim/program/program.h"

namespace pipewright {

// With strategy.offload_sharing in-turn, and one order of passes: whose copy is
// next on each switch is settled before the run (sim/offload/copy_turns.h).
absl::Status SettleCopyTurns(const PreparedRun& run, Program* program);

}  // namespace pipewright
