// What two traces cannot show about each other: times that were given to one of
// them, counters that count different things.
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
