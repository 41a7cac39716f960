#include "calibrate/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/statistics.h"
#include "sim/cost/jitter.h"

namespace pipewright {
namespace {

constexpr int kQuantiles = 21;
constexpr size_t kLeastRoundMedians = 3;
// The first and the last of five enclose the median with 93.75 %.
constexpr int64_t kLeastForInterval = 6;
// Median absolute deviation to standard deviation of a normal distribution.
constexpr double kMadScale = 1.4826;
constexpr double kOutlier = 5;
constexpr double kNormal90 = 1.6449;  // two-sided quantiles of the normal
constexpr double kNormal95 = 1.9600;  // distribution

double Variance(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean =
      std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return squares / (count - 1);
}

// The variance of the difference between this calibration's median and that of
// another with as many rounds right after it, estimated from this one's rounds.
//
// The local-level model (Harvey, Forecasting, Structural Time Series Models and
// the Kalman Filter, 1989, section 2.3): a level moves by steps of variance q
// from round to round, and rounds scatter around it with variance w. The
// variance of n rounds is then w + q (n + 1) / 6, and the mean square of a step
// is 2 w + q. These give w and q. In the difference of the means of two such
// runs in a row, the steps have the variance q (2 n^2 + 1) / (3 n). The scatter
// counts as that of single rounds, because the rounds of a run do not show what
// the run draws only once.
double DriftVariance(const std::vector<double>& medians) {
  const auto count = static_cast<double>(medians.size());
  const double variance = Variance(medians);
  double step = 0;
  for (size_t index = 1; index < medians.size(); ++index) {
    step += (medians[index] - medians[index - 1]) *
            (medians[index] - medians[index - 1]);
  }
  step /= count - 1;
  const double moves =
      std::clamp((variance - step / 2) / ((count - 2) / 6), 0.0, step);
  const double scatter = std::max(
      0.0, std::min((step - moves) / 2, variance - moves * (count + 1) / 6));
  const double spread = 1 + 1 / count;
  return std::max(
      variance * spread,
      scatter * spread + moves * (2 * count * count + 1) / (3 * count));
}

}  // namespace

double QuantileOf(const std::vector<double>& sorted, double fraction) {
  PW_CHECK(!sorted.empty());
  return QuantileAt(sorted, fraction);
}

std::pair<int64_t, int64_t> MedianInterval(int64_t count) {
  // The largest `below` with P(Binomial(count, 1/2) <= below) <= 2.5 %.
  int64_t below = -1;
  double logarithm = -static_cast<double>(count) * std::log(2.0);
  double sum = 0;
  while (below + 1 < count / 2) {
    sum += std::exp(logarithm);
    if (sum > 0.025) break;
    ++below;
    logarithm += std::log(static_cast<double>(count - below)) -
                 std::log(static_cast<double>(below + 1));
  }
  const int64_t low = std::max<int64_t>(0, below);
  return {low, count - 1 - low};
}

Distribution Summarize(const Rounds& rounds, double resolution) {
  std::vector<double> all;
  std::vector<double> medians;
  for (const std::vector<double>& round : rounds) {
    if (round.empty()) continue;
    all.insert(all.end(), round.begin(), round.end());
    medians.push_back(Median(round));
  }
  PW_CHECK(!all.empty());
  std::sort(all.begin(), all.end());
  Distribution out;
  out.count = static_cast<int64_t>(all.size());
  out.median_s = Median(all);
  out.p10_s = QuantileOf(all, 0.1);
  out.p90_s = QuantileOf(all, 0.9);
  out.mean_s = std::accumulate(all.begin(), all.end(), 0.0) /
               static_cast<double>(all.size());
  out.min_s = all.front();
  out.max_s = all.back();
  std::vector<double> deviations;
  for (const double sample : all) {
    deviations.push_back(std::abs(sample - out.median_s));
  }
  out.mad_s = Median(deviations);
  const double limit = std::max(kOutlier * kMadScale * out.mad_s, resolution);
  out.outliers =
      std::count_if(deviations.begin(), deviations.end(),
                    [limit](double deviation) { return deviation > limit; });
  const auto [low, high] = MedianInterval(out.count);
  const double low_s = all[static_cast<size_t>(low)];
  const double high_s = all[static_cast<size_t>(high)];
  if (out.count >= kLeastForInterval) {
    out.confidence_low_s = low_s;
    out.confidence_high_s = high_s;
  }
  for (int index = 0; index < kQuantiles; ++index) {
    out.quantiles_s.push_back(
        QuantileOf(all, static_cast<double>(index) / (kQuantiles - 1)));
  }
  if (medians.size() < kLeastRoundMedians) return out;
  // Within a round's samples both calibrations err; the two errors add up.
  const double within = (high_s - low_s) / (2 * kNormal95);
  const double half =
      std::max({StudentT(0.90, static_cast<int64_t>(medians.size()) - 1) *
                    std::sqrt(DriftVariance(medians)),
                kNormal90 * std::sqrt(2.0) * within, resolution});
  out.prediction_low_s = std::max(0.0, out.median_s - half);
  out.prediction_high_s = out.median_s + half;
  return out;
}

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
