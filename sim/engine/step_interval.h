// Where the next step is to be expected: a 90 % prediction interval of one
// step, not of a mean of many. Four things add to it.
//   - Drift between the measurement and the run, which slows or speeds up all
//     passes alike: the step replayed with every measured time at the end of
//     its drift. It does not average out.
//   - What is not known of each measured time by itself (few samples,
//     interpolation): the step replayed with one time after the other at its
//     end; independent of each other, so their squares add up.
//   - Noise of single passes: replays with drawn times, whose spread falls with
//     the number of passes that follow each other, and whose mean lies above
//     the step without noise, since who waits for several waits for the
//     slowest.
//   - What passes take in each other's company, which is no chance: the
//     interval reaches from the step with passes as each was timed among its
//     own kind to the step with all of them as in the chains that were timed.
// Replays are those of the fast engine; what it has no part of (shared links,
// interference) is taken to grow with the rest.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/cost/jitter.h"
#include "sim/cost/pass_costs.h"
#include "sim/cost/time_source.h"

namespace pipewright {

struct Program;

struct StepInterval {
  double low_s = 0;
  double high_s = 0;
  // RatioInterval's.
  std::string note;
  std::string unmeasured;
};

struct StepErrors {
  std::vector<TimeSource> sources;
  Jitter noise;  // its seed does not count
  // What passes take back to back over what each takes among its own kind.
  double back_to_back = 1;
};

// Interval of a step that takes `iteration_s` without noise (with it, if
// `program.jitter` is there: then that is in it already). `costs`: what
// `program` was lowered with; seconds of it that no source has are exact.
// Errors: as RunFast.
absl::StatusOr<StepInterval> PredictStep(const Program& program,
                                         const PassCosts& costs,
                                         const StepErrors& errors,
                                         double iteration_s);

}  // namespace pipewright
