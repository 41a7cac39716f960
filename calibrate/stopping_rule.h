// When enough samples of one thing have been taken. Pure: samples in, verdict
// out; the clock is the caller's.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "calibrate/statistics.h"

namespace pipewright {

struct StoppingRule {
  // Half of the 95 % confidence interval of the median over the median.
  double precision = 0.01;
  int64_t min_samples = 12;
  int64_t max_samples = 2000;
  double max_seconds = 30;
};

enum class Verdict {
  kGoOn,
  kPrecise,     // the interval is narrow, and the median stands still
  kMaxSamples,  // as much as was allowed, and not precise
  kMaxTime
};

// The median stands still when those of the first and the second half of the
// samples differ by less than twice `precision`, relative: order statistics
// alone would call a drifting series precise.
Verdict Decide(const StoppingRule& rule, const Rounds& rounds, double seconds);

absl::string_view VerdictName(Verdict verdict);

}  // namespace pipewright
