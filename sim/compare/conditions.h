// What two traces cannot tell of each other: times that one of them was given,
// counters that count two different things.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "sim/compare/comparison.h"

namespace pipewright {

// "what the executor has allocated": what the counter "memory" of a
// trace with this word (trace_origin.h) counts.
std::string MemoryInWords(absl::string_view memory);

// Fills in `conditions`; all else is there.
void AddConditions(TraceComparison* comparison);

}  // namespace pipewright
