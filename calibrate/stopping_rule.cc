#include "calibrate/stopping_rule.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/statistics.h"

namespace pipewright {
namespace {

bool IsPrecise(double precision, const std::vector<double>& samples) {
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  const auto [low, high] = MedianInterval(static_cast<int64_t>(sorted.size()));
  const double median = Median(sorted);
  const double width =
      sorted[static_cast<size_t>(high)] - sorted[static_cast<size_t>(low)];
  if (width > 2 * precision * median) return false;
  const auto middle =
      samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  const double first = Median({samples.begin(), middle});
  const double second = Median({middle, samples.end()});
  return std::abs(second - first) <= 2 * precision * median;
}

}  // namespace

Verdict Decide(const StoppingRule& rule, const Rounds& rounds, double seconds) {
  std::vector<double> samples;
  for (const std::vector<double>& round : rounds) {
    samples.insert(samples.end(), round.begin(), round.end());
  }
  const auto count = static_cast<int64_t>(samples.size());
  // Below six samples no interval holds the median with 95 %.
  if (count >= std::max<int64_t>(rule.min_samples, 6) &&
      IsPrecise(rule.precision, samples)) {
    return Verdict::kPrecise;
  }
  if (count >= rule.max_samples) return Verdict::kMaxSamples;
  if (seconds >= rule.max_seconds) return Verdict::kMaxTime;
  return Verdict::kGoOn;
}

absl::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGoOn:
      return "not yet";
    case Verdict::kPrecise:
      return "precise";
    case Verdict::kMaxSamples:
      return "as many samples as allowed";
    case Verdict::kMaxTime:
      return "as much time as allowed";
  }
  PW_CHECK(false);
}

}  // namespace pipewright
