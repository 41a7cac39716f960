#include "sim/cost/time_source.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipewright {
namespace {

// As kTwoSided90. [numerics]
constexpr double kNormal95 = 1.9600;

// The one of `entries` whose size is nearest, by its logarithm.
template <class Entry, class Size>
std::optional<TimeError> NearestError(const std::vector<const Entry*>& entries,
                                      double wanted, Size size) {
  const Entry* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Entry* entry : entries) {
    const double distance =
        std::abs(std::log(static_cast<double>(size(*entry)) / wanted));
    if (distance >= least) continue;
    least = distance;
    nearest = entry;
  }
  return nearest == nullptr ? std::nullopt : ErrorOfMedian(nearest->time);
}

}  // namespace

std::optional<TimeError> ErrorOfMedian(const Distribution& time) {
  if (time.median_s <= 0 || time.prediction_high_s <= 0) return {};
  const double all =
      (time.prediction_high_s - time.prediction_low_s) / 2 / time.median_s;
  const double samples = (time.confidence_high_s - time.confidence_low_s) / 2 /
                         time.median_s * kTwoSided90 / kNormal95;
  return TimeError{
      .drift = std::sqrt(std::max(0.0, all * all - 2 * samples * samples)),
      .own = samples};
}

std::optional<TimeError> OptimizerError(const Profile& profile,
                                        double parameters) {
  std::vector<const OptimizerEntry*> entries;
  for (const OptimizerEntry& entry : profile.optimizers) {
    if (entry.where == "device" && !entry.prediction && entry.parameters > 0 &&
        entry.time.median_s > 0) {
      entries.push_back(&entry);
    }
  }
  return NearestError(entries, parameters, [](const OptimizerEntry& entry) {
    return entry.parameters;
  });
}

std::optional<TimeError> HopError(const Profile& profile, double bytes) {
  std::vector<const TransferEntry*> entries;
  for (const TransferEntry& entry : profile.transfers) {
    if (entry.operation == "send_recv" && entry.ranks == 2 && entry.bytes > 0 &&
        entry.time.median_s > 0) {
      entries.push_back(&entry);
    }
  }
  return NearestError(entries, bytes,
                      [](const TransferEntry& entry) { return entry.bytes; });
}

}  // namespace pipewright
