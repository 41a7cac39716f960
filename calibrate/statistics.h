// Statistics of the samples of one measurement: its distribution, how well the
// median is known, and the expected range of the median of a fresh calibration.
// No clocks, no kernels. Seconds, or ratios where the caller measures ratios.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/profile/profile.h"

namespace pipewright {

// Samples of one thing; one vector a round of the calibration, rounds apart in
// time.
using Rounds = std::vector<std::vector<double>>;

// Value at `fraction` (0..1) of ascending samples, linear between neighbours
// (type 7 of Hyndman and Fan, The American Statistician 50, 1996).
double QuantileOf(const std::vector<double>& sorted, double fraction);

// Indices (from 0) of the order statistics that enclose, with at least 95 %,
// the median of the distribution that `count` independent samples come from.
// With fewer than six samples they are the first and the last, and enclose it
// with less (binomial; e.g. David and Nagaraja, Order Statistics, section 7.1).
std::pair<int64_t, int64_t> MedianInterval(int64_t count);

// All rounds pooled; 21 quantiles; the confidence interval is zero with fewer
// than six samples. Outliers, further from the median than five
// scaled median absolute deviations, are counted and kept.
//
// The prediction interval is for the median of another calibration with as many
// rounds. It takes the spread of the round medians as the spread from one
// calibration to the next. It is wider where neighbouring rounds are alike:
// that is a drift, which goes on after the run. It uses Student's t for the few
// rounds, and it is no narrower than what the confidence interval and
// `resolution` (of the clock) leave open. Rounds count as equally far apart.
// With fewer than three rounds it is zero.
Distribution Summarize(const Rounds& rounds, double resolution);

// When enough samples of one thing have been taken. Pure: samples in, verdict
// out; the clock is the caller's.
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
