// What the measured times of a run are based on, and how far each may be off in
// another run of the same: the errors that stay the same for a whole step and
// longer. Noise of single passes, which averages out, is Jitter's.
//
// Errors are half-widths of 90 % intervals over the median.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/profile/profile.h"
#include "sim/schedule/pass.h"

namespace pipewright {

// Two-sided quantile of the normal distribution. [numerics]
inline constexpr double kTwoSided90 = 1.6449;

struct TimeError {
  // From one run to another. It has one cause for all that a machine does (its
  // clock, its neighbours), so the drifts of all sources go the same way.
  double drift = 0;
  // Error of this time alone: samples are few, or it lies between measured
  // shapes.
  double own = 0;
};

// The error of a median. Its drift is the prediction interval without what its
// own and the other run's samples leave open (twice the confidence interval's
// variance). Nothing where the drift is not known: fewer than three rounds.
std::optional<TimeError> ErrorOfMedian(const Distribution& time);

// One measured time and the parts of the run's times that come from it.
struct TimeSource {
  std::string name;  // "layer F", "optimizer", "hop"
  TimeError error;
  // [stage][PassKind]: of one microbatch, as StageCosts has them.
  std::vector<std::array<double, kNumPassKinds>> seconds;
  bool optimizer = false;  // the optimizer step
  bool hop = false;        // the delay of every hop
};

// The error of the optimizer step, of the measured one nearest in size.
std::optional<TimeError> OptimizerError(const Profile& profile,
                                        double parameters);

// The error of a hop of so many bytes, of the measured one nearest in size.
std::optional<TimeError> HopError(const Profile& profile, double bytes);

}  // namespace pipewright
