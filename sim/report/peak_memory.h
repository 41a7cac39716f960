// The peak of a run's memory: the one meaning of the key peak_memory_bytes
// (docs/json-and-exit-codes.md), by rank and as the one number of a run.
#pragma once

#include <vector>

#include "sim/report/report.h"

namespace pipewright {

// [rank] the allocator's peak on one device, the most over all data-parallel
// classes, without context and fragmentation; empty without a model.
std::vector<double> PeakMemoryOf(const Report& report);

// Peak of the rank that has most; 0 without a model.
double MostPeakMemoryOf(const Report& report);

}  // namespace pipewright
