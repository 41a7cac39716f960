// Wall time for time-outs and for the clocks that wait.
#pragma once

#include <string>

namespace pipewright {

// The machine's monotonic clock, in seconds since a moment of its own. All
// processes of one machine read the same.
double SteadySeconds();

// The same on all processes of one machine, and of no other.
std::string MachineName();

}  // namespace pipewright
