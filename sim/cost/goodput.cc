#include "sim/cost/goodput.h"

#include <algorithm>
#include <cmath>

namespace pipewright {

// Renewals are the ends of checkpoints. With the rate L of failures and S =
// work + writing, a try succeeds with probability exp(-L S); so exp(L S) - 1
// tries fail on average. Each ends after (1 - exp(-L S)) / L on average, be it
// by success or failure, and a restart that itself may fail takes (exp(L R) -
// 1) / L. What a renewal takes in all is then (exp(L S) - 1) exp(L R) / L.
TimeParts LongRunParts(const FailingJob& job) {
  const double rate = 1 / job.mtbf_s();
  const double segment_s = job.checkpoint_every_s + job.checkpoint_write_s;
  const double failures = std::expm1(rate * segment_s);
  const double renewal_s = failures * std::exp(rate * job.restart_s) / rate;
  // Beyond a double's end: nothing is ever written to its end.
  if (!std::isfinite(renewal_s)) {
    const double restart = -std::expm1(-rate * job.restart_s);
    return {.lost = 1 - restart, .restart = restart};
  }
  TimeParts parts;
  parts.kept = job.checkpoint_every_s / renewal_s;
  parts.checkpoint = job.checkpoint_write_s / renewal_s;
  parts.restart =
      failures * std::expm1(rate * job.restart_s) / rate / renewal_s;
  parts.lost = std::max(0.0, 1 - parts.kept - parts.checkpoint - parts.restart);
  return parts;
}

double YoungInterval(const FailingJob& job) {
  return std::sqrt(2 * job.checkpoint_write_s * job.mtbf_s());
}

double DalyInterval(const FailingJob& job) {
  const double half = job.checkpoint_write_s / (2 * job.mtbf_s());
  if (half >= 1) return job.mtbf_s();
  return YoungInterval(job) * (1 + std::sqrt(half) / 3 + half / 9) -
         job.checkpoint_write_s;
}

// The width of the interval at which the search for it ends. [numerics]
constexpr double kSameInterval = 1e-10;

// The derivative of the goodput is 0 where exp(L (work + writing)) (1 - L work)
// is 1. Its logarithm rises to 0 nowhere but there, between 0 and the mtbf.
double BestInterval(const FailingJob& job) {
  if (job.checkpoint_write_s <= 0) return 0;
  const double write = job.checkpoint_write_s / job.mtbf_s();
  double low = 0;
  double high = 1;
  while (high - low > kSameInterval * high) {
    const double middle = (low + high) / 2;
    (middle + write + std::log1p(-middle) > 0 ? low : high) = middle;
  }
  return (low + high) / 2 * job.mtbf_s();
}

}  // namespace pipewright
