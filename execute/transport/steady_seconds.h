// Wall time for time-outs and for the clocks that wait.
#pragma once

namespace pipewright {

// The machine's monotonic clock, in seconds since a moment of its own. All
// processes of one machine read the same.
double SteadySeconds();

}  // namespace pipewright
