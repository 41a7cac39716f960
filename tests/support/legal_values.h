// What a schedule's row says of its own parameters (ParamInfo::legal), as
// values to build with: "a|b|c", or "LOW..HIGH" where an end is a number, the
// name of a size (pp, vpp, microbatches, slices), or nothing for no end, or
// "TIME" for one with its unit.
#pragma once

#include <string>
#include <vector>

#include "sim/schedule/registry.h"

namespace pipewright::testing {

// All values of a choice. A range gives all of up to 33 integers, else both
// ends and powers of two, and fractions if both ends are 0 and 1; without an
// upper end it gives up to 2^20. Empty if a range is empty at these sizes.
// Aborts if `legal` is neither.
std::vector<std::string> LegalValuesOf(const ParamInfo& param,
                                       const ScheduleParams& sizes);

// What is neither a value of the choice nor in the range.
std::vector<std::string> IllegalValuesOf(const ParamInfo& param,
                                         const ScheduleParams& sizes);

}  // namespace pipewright::testing
