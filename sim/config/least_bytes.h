// What a run needs with copies of activations to the host, before they are
// planned: planning them takes longer than all the rest.
#pragma once

#include "absl/status/statusor.h"
#include "sim/config/prepare.h"

namespace pipewright {

// Bytes that a device of the neediest rank needs at least, however copies of
// `mode` are planned. `run` is the same without copies. 0 where nothing tells.
// Error: as of Prepare with `mode`.
absl::StatusOr<double> LeastBytesWithCopies(PreparedRun run, OffloadMode mode);

// Bytes a second that a device of `run` copies one way at most, as plans count
// it: of the fastest rank. Infinite where nothing tells.
double MostCopiedPerSecond(PreparedRun run);

}  // namespace pipewright
