// The search for the fastest layout that fits, for programs outside of this
// repository: MakePlan. Target pipewright::plan.
#pragma once

#include "sim/analysis/search/plan.h"  // IWYU pragma: export
