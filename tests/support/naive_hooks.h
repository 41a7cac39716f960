// Where the hooks of a Program fire, found anew for the naive reference engine:
// whole lists, no windows.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"

namespace pipewright {

// [hook] positions of the passes that fire it, of a rank's order from `begin`
// to `end`.
std::vector<std::vector<int64_t>> HookFirings(const RankProgram& rank,
                                              int64_t begin, int64_t end);

}  // namespace pipewright
