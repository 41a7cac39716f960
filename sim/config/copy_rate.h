// How fast a device of a run copies to its host and back.
#pragma once

#include "sim/config/prepare.h"

namespace pipewright {

// Bytes a second one way at most, as plans of copies count it: of the fastest
// rank. `run` has no copies. Infinite where nothing tells.
double MostCopiedPerSecond(PreparedRun run);

}  // namespace pipewright
