// Changes of its configuration that would help a run that does not fit, each
// tried by preparing the run again.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/config/prepare.h"
#include "sim/report/memory_report.h"

namespace pipewright {

// So many a report names.
inline constexpr size_t kChangesNamed = 3;

// At most `most`, the one that saves most on the worst rank first; of changes
// of one kind (recomputation, ZeRO, splits of the layers, ...) the mildest
// that is enough or else the one that saves most. Empty without a model, and
// for schedules too large to build a few times over. `context`: that of `run`.
std::vector<MemoryChange> AdviseMemory(const PreparedRun& run, size_t most,
                                       RunContext* context);

}  // namespace pipewright
