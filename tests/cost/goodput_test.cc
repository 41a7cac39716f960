// Goodput of a job whose devices fail: the closed form, the drawn stretches and
// a naive run with a clock for every device, three codes that share nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "sim/cost/failure_days.h"
#include "sim/cost/goodput.h"

namespace pipewright::goodput_test {
namespace {

constexpr double kDay = 86400;

struct Estimate {
  double mean = 0;
  double error = 0;
};

Estimate MeanOf(const std::vector<double>& values) {
  Estimate out;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) out.mean += value / count;
  double square = 0;
  for (const double value : values) {
    square += (value - out.mean) * (value - out.mean);
  }
  out.error = std::sqrt(square / (count - 1) / count);
  return out;
}

Estimate DrawnGoodput(const FailingJob& job, double horizon_s, int days) {
  std::vector<double> kept;
  for (const FailureDay& day : DrawFailureDays(job, horizon_s, days, 7)) {
    kept.push_back(day.seconds.kept / horizon_s);
  }
  return MeanOf(kept);
}

// Second by second as it happens: the state of the job, and when each device
// fails next. Nothing is drawn for all devices together.
double NaiveGoodput(const FailingJob& job, double horizon_s, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> life(1 / job.mtbf_per_device_s);
  std::vector<double> dies_s(job.devices);
  for (double& at_s : dies_s) at_s = life(random);
  enum { kWork, kWrite, kRestart } state = kWork;
  double now_s = 0;
  double phase_end_s = job.checkpoint_every_s;
  double unsaved_s = 0;
  double saved_s = 0;
  while (now_s < horizon_s) {
    const auto first = std::min_element(dies_s.begin(), dies_s.end());
    if (*first < phase_end_s) {
      now_s = *first;
      *first = now_s + life(random);
      unsaved_s = 0;
      state = kRestart;
      phase_end_s = now_s + job.restart_s;
      continue;
    }
    now_s = phase_end_s;
    if (state == kWork) {
      unsaved_s = job.checkpoint_every_s;
      state = kWrite;
      phase_end_s = now_s + job.checkpoint_write_s;
      continue;
    }
    if (state == kWrite) saved_s += unsaved_s;
    unsaved_s = 0;
    state = kWork;
    phase_end_s = now_s + job.checkpoint_every_s;
  }
  return saved_s / now_s;
}

TEST_CASE("goodput: the formula is what a clock for every device gives",
          "[cost][goodput]") {
  const FailingJob jobs[] = {
      {5, 8e4, 900, 60, 300}, {3, 6e3, 1500, 400, 0}, {7, 2e4, 300, 30, 4000}};
  for (const FailingJob& job : jobs) {
    std::vector<double> runs;
    for (uint32_t seed = 0; seed < 60; ++seed) {
      runs.push_back(NaiveGoodput(job, 2e7, seed));
    }
    const Estimate naive = MeanOf(runs);
    const double formula = LongRunParts(job).kept;
    INFO(formula << " " << naive.mean << " +/- " << naive.error);
    CHECK(naive.error < 0.005 * formula);
    CHECK(std::abs(naive.mean - formula) < 4 * naive.error);
    CHECK(std::abs(naive.mean - formula) < 0.01 * formula);
  }
}

TEST_CASE("goodput: drawn days have the mean of the formula, 8 or 8000 devices",
          "[cost][goodput]") {
  const double year = 365 * kDay;
  for (const int64_t devices : {8, 8000}) {
    for (const double restart_s : {0.0, 600.0}) {
      const FailingJob job = {devices, 5 * year, 1500, 60, restart_s};
      const Estimate drawn = DrawnGoodput(job, kDay, 4000);
      const double formula = LongRunParts(job).kept;
      INFO(devices << " " << formula << " " << drawn.mean);
      CHECK(std::abs(drawn.mean - formula) < 0.01 * formula);
      CHECK(std::abs(drawn.mean - formula) < 4 * drawn.error + 1e-6);
    }
  }
}

TEST_CASE("goodput: every part has the mean of the formula",
          "[cost][goodput]") {
  const FailingJob job = {100, 1e6, 2000, 300, 500};
  constexpr int kDays = 4000;
  TimeParts mean;
  double failures = 0;
  for (const FailureDay& day : DrawFailureDays(job, kDay, kDays, 3)) {
    const TimeParts& own = day.seconds;
    CHECK(own.kept + own.checkpoint + own.lost + own.restart ==
          Approx(kDay).epsilon(1e-9));
    mean.kept += own.kept / kDay / kDays;
    mean.checkpoint += own.checkpoint / kDay / kDays;
    mean.lost += own.lost / kDay / kDays;
    mean.restart += own.restart / kDay / kDays;
    failures += static_cast<double>(day.failures) / kDays;
  }
  const TimeParts formula = LongRunParts(job);
  CHECK(mean.kept == Approx(formula.kept).epsilon(0.01));
  CHECK(mean.checkpoint == Approx(formula.checkpoint).epsilon(0.01));
  CHECK(mean.lost == Approx(formula.lost).epsilon(0.02));
  CHECK(mean.restart == Approx(formula.restart).epsilon(0.02));
  CHECK(failures == Approx(kDay / job.mtbf_s()).epsilon(0.02));
}

TEST_CASE("goodput: only the failures of all devices together count",
          "[cost][goodput]") {
  const FailingJob few = {8, 8e6, 1000, 60, 300};
  const FailingJob many = {8000, 8e9, 1000, 60, 300};
  CHECK(LongRunParts(few).kept == LongRunParts(many).kept);
  const std::vector<FailureDay> one = DrawFailureDays(few, kDay, 50, 1);
  const std::vector<FailureDay> other = DrawFailureDays(many, kDay, 50, 1);
  for (size_t day = 0; day < one.size(); ++day) {
    CHECK(one[day].seconds.kept == other[day].seconds.kept);
    CHECK(one[day].failures == other[day].failures);
  }
  CHECK(FailuresToDraw(few, kDay, 50) == FailuresToDraw(many, kDay, 50));
}

TEST_CASE("goodput: without failures only checkpoints cost",
          "[cost][goodput]") {
  const FailingJob job = {1, 1e9, 90, 10, 100};
  const TimeParts parts = LongRunParts(job);
  CHECK(parts.kept == Approx(0.9).epsilon(1e-6));
  CHECK(parts.checkpoint == Approx(0.1).epsilon(1e-6));
  for (const FailureDay& day : DrawFailureDays(job, 1000, 20, 5)) {
    CHECK(day.seconds.kept == Approx(900).epsilon(1e-9));
  }
}

TEST_CASE("goodput: what never gets done is no progress", "[cost][goodput]") {
  // exp() of these is beyond a double.
  for (const FailingJob& job :
       {FailingJob{1000, 1e3, 1e6, 60, 5}, FailingJob{1, 1, 10, 1, 1e6}}) {
    const TimeParts parts = LongRunParts(job);
    CHECK(parts.kept == 0);
    CHECK(parts.lost + parts.restart == Approx(1));
    CHECK(parts.lost >= 0);
    CHECK(parts.restart >= 0);
  }
}

TEST_CASE("goodput: the intervals of Young and Daly", "[cost][goodput]") {
  // Writing of 5 min, a failure a day: 5 / 2880 is 1 / 24^2, so Young's
  // interval is 120 min and Daly's 120 (1 + 1/72 + 1/5184) - 5.
  const FailingJob job = {24, 24 * kDay, 3600, 300, 0};
  CHECK(YoungInterval(job) == Approx(120 * 60));
  CHECK(DalyInterval(job) ==
        Approx((120 * (1 + 1.0 / 72 + 1.0 / 5184) - 5) * 60).epsilon(1e-12));
  // Writing takes two mean times between failures.
  CHECK(DalyInterval({1, 100, 10, 200, 0}) == 100);
  CHECK(DalyInterval({1, 100, 10, 500, 0}) == 100);
}

TEST_CASE("goodput: no interval is better than the best", "[cost][goodput]") {
  for (const double write_s : {1.0, 60.0, 900.0, 20000.0}) {
    const FailingJob job = {10, 1e5, 1, write_s, 250};
    const auto goodput = [&job](double every_s) {
      FailingJob other = job;
      other.checkpoint_every_s = every_s;
      return LongRunParts(other).kept;
    };
    const double best_s = BestInterval(job);
    INFO(write_s << " " << best_s);
    // Best of all intervals in steps of 1 %.
    double grid_s = 0;
    for (double every_s = 1; every_s < 1e5; every_s *= 1.01) {
      CHECK(goodput(every_s) <= goodput(best_s) * (1 + 1e-12));
      if (goodput(every_s) > goodput(grid_s > 0 ? grid_s : 1)) grid_s = every_s;
    }
    CHECK(grid_s == Approx(best_s).epsilon(0.011));
    // Daly's is that but for a small part while writing is short.
    if (write_s <= 900) {
      CHECK(goodput(DalyInterval(job)) > 0.999 * goodput(best_s));
    }
  }
  CHECK(BestInterval({1, 100, 10, 0, 0}) == 0);
}

}  // namespace
}  // namespace pipewright::goodput_test
