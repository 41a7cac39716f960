// What a schedule's row says of its own parameters (ParamInfo::legal), as
// values to build with: "a|b|c", or "LOW..HIGH" where an end is a number, the
// name of a size (pp, vpp, microbatches, slices), or nothing for no end.
#pragma once

#include <string>
#include <vector>

#include "sim/schedule/registry.h"

namespace pipewright::testing {

// Of a choice all values. Of a range up to 33 integers all, else both ends and
// powers of two, and fractions where both ends are 0 and 1; in a range without
// an upper end up to 2^20. Empty where a range is empty at these sizes.
// Aborts where `legal` is neither.
std::vector<std::string> LegalValuesOf(const ParamInfo& param,
                                       const ScheduleParams& sizes);

// What is neither a value of the choice nor in the range.
std::vector<std::string> IllegalValuesOf(const ParamInfo& param,
                                         const ScheduleParams& sizes);

}  // namespace pipewright::testing
