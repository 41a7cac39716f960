// What a step waits for.
#pragma once

#include <string>
#include <vector>

#include "sim/report/report.h"

namespace pipewright {

// Part of a step that makes it last.
struct StepLimit {
  std::string name;
  double share = 0;
};

// The largest first; together 1. Empty for a step without time.
std::vector<StepLimit> LimitsOf(const Report& report);

// "86.0 % passes of the busiest rank; 13.0 % bubble: ...", "" for none.
std::string LimitsText(const Report& report);

}  // namespace pipewright
