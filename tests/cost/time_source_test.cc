#include "sim/cost/time_source.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace pipewright::time_source_test {
namespace {

// Median of 1 s with the half-widths of both intervals.
Distribution Known(double confidence, double prediction) {
  return {.count = 20,
          .median_s = 1,
          .confidence_low_s = 1 - confidence,
          .confidence_high_s = 1 + confidence,
          .prediction_low_s = 1 - prediction,
          .prediction_high_s = 1 + prediction};
}

TEST_CASE("cost: drift is what samples do not explain of a prediction",
          "[cost]") {
  // No error of sampling: all is drift.
  CHECK(ErrorOfMedian(Known(0, 0.05))->drift == Approx(0.05));
  CHECK(ErrorOfMedian(Known(0, 0.05))->own == 0);
  // 95 to 90 %.
  const double samples = 0.02 * 1.6449 / 1.9600;
  const TimeError both = *ErrorOfMedian(Known(0.02, 0.05));
  CHECK(both.own == Approx(samples));
  CHECK(both.drift * both.drift + 2 * samples * samples == Approx(0.05 * 0.05));
  // Two medians that differ by no more than their samples: no drift.
  const TimeError still = *ErrorOfMedian(Known(0.02, std::sqrt(2.0) * samples));
  CHECK(still.drift == Approx(0).margin(1e-9));
  CHECK(ErrorOfMedian(Known(0.03, 0.01))->drift == 0);
  // Relative to the median.
  Distribution longer = Known(0.02, 0.05);
  longer.median_s = 2;
  CHECK(ErrorOfMedian(longer)->drift == Approx(both.drift / 2));
  // Too few rounds for a prediction: nobody knows the drift.
  longer.prediction_low_s = longer.prediction_high_s = 0;
  CHECK_FALSE(ErrorOfMedian(longer));
}

TEST_CASE("cost: the optimizer's and a hop's error are those of the nearest",
          "[cost]") {
  Profile profile;
  CHECK_FALSE(OptimizerError(profile, 1000));
  CHECK_FALSE(HopError(profile, 1000));
  for (const int64_t size : {1000, 100000}) {
    const double error = size == 1000 ? 0.01 : 0.02;
    profile.optimizers.push_back(
        {.where = "device", .parameters = size, .time = Known(0, error)});
    profile.transfers.push_back({.operation = "send_recv",
                                 .ranks = 2,
                                 .bytes = size,
                                 .time = Known(0, error)});
  }
  profile.optimizers.push_back(
      {.where = "host", .parameters = 5000, .time = Known(0, 0.5)});
  profile.transfers.push_back({.operation = "all_reduce",
                               .ranks = 2,
                               .bytes = 5000,
                               .time = Known(0, 0.5)});
  CHECK(OptimizerError(profile, 5000)->drift == Approx(0.01));
  CHECK(OptimizerError(profile, 50000)->drift == Approx(0.02));
  CHECK(HopError(profile, 5000)->drift == Approx(0.01));
  CHECK(HopError(profile, 1e9)->drift == Approx(0.02));
}

}  // namespace
}  // namespace pipewright::time_source_test
