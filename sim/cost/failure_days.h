// Days of a job whose devices fail (goodput.h), drawn one by one from their
// failures. No formula of goodput.h is used here, so that each checks the
// other.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cost/goodput.h"

namespace pipewright {

// Seconds of one day: they add up to the horizon.
struct FailureDay {
  TimeParts seconds;
  int64_t failures = 0;
};

// `days` stretches of `horizon_s` out of long runs, one a draw. A stretch
// begins at a random place of the cycle of work and writing, long after the
// job's start; work at its end counts as kept where the run gets it written
// later. A draw depends on `seed` and its number alone. `horizon_s` above 0.
// The work grows with FailuresToDraw and with nothing else.
std::vector<FailureDay> DrawFailureDays(const FailingJob& job, double horizon_s,
                                        int days, uint64_t seed);

// How many failures that takes to draw, about.
double FailuresToDraw(const FailingJob& job, double horizon_s, int days);

}  // namespace pipewright
