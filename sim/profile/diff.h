// Two profiles against each other: which times differ by more than their
// noise. Pure; nothing is measured.
#pragma once

#include <string>
#include <vector>

#include "sim/profile/profile.h"

namespace pipewright {

// A time of a profile with its key; of a split two, chain and fused.
struct NamedTime {
  std::string key;
  const Distribution* time;
};
// Times of passes, splits, kernels, optimizers, copies and transfers, in this
// order.
std::vector<NamedTime> AllTimes(const Profile& profile);

struct TimeDifference {
  std::string key;
  double before_s = 0;
  double after_s = 0;
  double ratio = 1;  // after over before
  // The range of the ratio, from the ends of the two intervals.
  double ratio_low = 1;
  double ratio_high = 1;
  // Prediction intervals, drift between runs included; where one profile has
  // none, confidence intervals, and `drift` is false; where one has neither,
  // `known` is false and nothing is significant.
  bool drift = true;
  bool known = true;
  // The new median is outside of the interval that the old run gave for it,
  // and the old one outside of that of the new run.
  bool significant = false;
};

struct ProfileDiff {
  std::vector<TimeDifference> times;  // for keys that both have
  std::vector<std::string> only_before;
  std::vector<std::string> only_after;
};

ProfileDiff DiffProfiles(const Profile& before, const Profile& after);

// How often the prediction interval of one profile holds the median of a later
// one of the same device, over all pairs of `profiles` in their order.
struct IntervalCoverage {
  std::string name;  // "all", "layer", "copy", ...: the first word of the key
  int64_t inside = 0;
  int64_t compared = 0;
  // Over the pairs of neighbours alone: two runs, one after the other.
  int64_t next_inside = 0;
  int64_t next_compared = 0;
};
std::vector<IntervalCoverage> CoverageOf(const std::vector<Profile>& profiles);

}  // namespace pipewright
