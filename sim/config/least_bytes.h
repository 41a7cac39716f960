// What a run needs with copies of activations to the host, before they are
// planned: planning them takes longer than all the rest.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "sim/config/prepare.h"

namespace pipewright {

// [rank] what a device needs at least besides what it needs all the time,
// however copies of `mode` are planned; `copied_per_s` is MostCopiedPerSecond.
// `run` is the same without copies. 0 where nothing tells. Error: as of Prepare
// with `mode`.
absl::StatusOr<std::vector<double>> LeastLiveBytes(PreparedRun run,
                                                   OffloadMode mode,
                                                   double copied_per_s);

// Bytes a second that a device of `run` copies one way at most, as plans count
// it: of the fastest rank. Infinite where nothing tells.
double MostCopiedPerSecond(PreparedRun run);

}  // namespace pipewright
