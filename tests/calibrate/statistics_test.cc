// Statistics and the stopping rule on samples that were drawn, not measured.
#include "calibrate/statistics.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace pipewright::statistics_test {
namespace {

using Samples = std::vector<double>;

template <class Draw>
Rounds Drawn(int rounds, int each, Draw draw) {
  Rounds out(static_cast<size_t>(rounds));
  for (Samples& round : out) {
    for (int index = 0; index < each; ++index) round.push_back(draw());
  }
  return out;
}

TEST_CASE("statistics: order statistics enclose the median", "[calibrate]") {
  using Interval = std::pair<int64_t, int64_t>;
  // Tables of the binomial distribution: P(X <= 0) of 5 is 3.1 %, of 6 1.6 %;
  // P(X <= 1) of 9 is 1.95 %; P(X <= 39) of 100 is 1.76 %.
  CHECK(MedianInterval(1) == Interval{0, 0});
  CHECK(MedianInterval(5) == Interval{0, 4});
  CHECK(MedianInterval(6) == Interval{0, 5});
  CHECK(MedianInterval(9) == Interval{1, 7});
  CHECK(MedianInterval(100) == Interval{39, 60});
  CHECK(MedianInterval(100000).first > 49000);
}

TEST_CASE("statistics: a distribution says what its samples are",
          "[calibrate]") {
  Rounds rounds = {{3, 1, 2}, {5, 4, 6}, {8, 7, 9}};
  const Distribution time = Summarize(rounds, 0);
  CHECK(time.count == 9);
  CHECK(time.median_s == 5);
  CHECK(time.min_s == 1);
  CHECK(time.max_s == 9);
  CHECK(time.mean_s == 5);
  CHECK(time.mad_s == 2);
  CHECK(time.p10_s == Approx(1.8));
  CHECK(time.p90_s == Approx(8.2));
  CHECK(time.confidence_low_s == 2);
  CHECK(time.confidence_high_s == 8);
  CHECK(time.outliers == 0);
  REQUIRE(time.quantiles_s.size() == 21);
  CHECK(time.quantiles_s[10] == 5);
  // Round medians 2, 5, 8: t(2) = 2.920; steps of 3 each, so all of it drifts.
  const double half = 2.920 * 3 * std::sqrt(19.0 / 9);
  CHECK(time.prediction_low_s == 0);  // 5 - half is below
  CHECK(time.prediction_high_s == Approx(5 + half));
  // There and back: deviation sqrt(12), and nothing drifts.
  const Distribution level = Summarize({{2}, {8}, {2}}, 0);
  CHECK(level.prediction_high_s ==
        Approx(2 + 2.920 * std::sqrt(12 * (1 + 1.0 / 3))));
}

TEST_CASE("statistics: five samples give no confidence interval",
          "[calibrate]") {
  const Distribution five = Summarize({{1, 2, 3, 4, 5}}, 0);
  CHECK(five.confidence_low_s == 0);
  CHECK(five.confidence_high_s == 0);
  const Distribution six = Summarize({{1, 2, 3, 4, 5, 6}}, 0);
  CHECK(six.confidence_low_s == 1);
  CHECK(six.confidence_high_s == 6);
}

TEST_CASE("statistics: outliers are counted and kept", "[calibrate]") {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(100, 1);
  Rounds rounds = Drawn(4, 50, [&] { return normal(random); });
  rounds[1][7] = 500;
  rounds[2][9] = 130;
  const Distribution time = Summarize(rounds, 0);
  CHECK(time.count == 200);
  CHECK(time.outliers == 2);
  CHECK(time.max_s == 500);
  CHECK(time.median_s == Approx(100).epsilon(0.005));
}

TEST_CASE("statistics: two rounds tell nothing of the drift", "[calibrate]") {
  const Distribution time = Summarize({{1, 2, 3}, {1, 2, 3}}, 0);
  CHECK(time.prediction_high_s == 0);
}

TEST_CASE("statistics: equal samples leave the clock's resolution",
          "[calibrate]") {
  const Distribution time = Summarize({{2, 2}, {2, 2}, {2, 2}}, 0.25);
  CHECK(time.prediction_low_s == 1.75);
  CHECK(time.prediction_high_s == 2.25);
}

// Rounds with one and the same median: nothing drifts, and what is left is the
// sampling within them.
TEST_CASE("statistics: both calibrations err in their samples", "[calibrate]") {
  const Distribution time = Summarize({{4, 5, 6}, {4, 5, 6}, {4, 5, 6}}, 0);
  CHECK(time.confidence_low_s == 4);
  CHECK(time.confidence_high_s == 6);
  // 4 to 6 is 1.96 standard errors of a median each way. The difference of
  // two medians has sqrt(2) of that; 1.645 of it enclose 90 %.
  const double half = 1.6449 * std::sqrt(2.0) * (1 / 1.96);
  CHECK(time.prediction_low_s == Approx(5 - half).epsilon(1e-6));
  CHECK(time.prediction_high_s == Approx(5 + half).epsilon(1e-6));
}

// What the interval promises, where its assumption holds: calibrations whose
// rounds drift independently.
TEST_CASE("statistics: a fresh median falls into the interval as often as said",
          "[calibrate]") {
  std::mt19937_64 random(5);
  std::normal_distribution<double> drift(0, 1);
  std::normal_distribution<double> noise(0, 0.5);
  const auto calibrate = [&](double run_drift) {
    Rounds rounds(6);
    for (Samples& round : rounds) {
      const double middle = 100 + run_drift + drift(random);
      for (int index = 0; index < 9; ++index) {
        round.push_back(middle + noise(random));
      }
    }
    return Summarize(rounds, 0);
  };
  int inside = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    // Runs differ from each other as rounds do, at most.
    const Distribution old_run = calibrate(0.8 * drift(random));
    const double median = calibrate(0.8 * drift(random)).median_s;
    inside += median >= old_run.prediction_low_s &&
              median <= old_run.prediction_high_s;
  }
  CHECK(inside > 0.80 * kRuns);
  CHECK(inside < 0.97 * kRuns);
}

// A machine whose speed wanders: the next calibration goes on where this one
// has ended.
TEST_CASE("statistics: a drift goes on after the run", "[calibrate]") {
  std::mt19937_64 random(17);
  std::normal_distribution<double> step(0, 1);
  std::normal_distribution<double> noise(0, 0.3);
  for (const int rounds : {4, 6}) {
    int inside = 0;
    int white = 0;
    constexpr int kRuns = 2000;
    for (int run = 0; run < kRuns; ++run) {
      double middle = 1000;
      const auto calibrate = [&] {
        Rounds out(static_cast<size_t>(rounds));
        for (Samples& round : out) {
          middle += step(random);
          for (int index = 0; index < 9; ++index) {
            round.push_back(middle + noise(random));
          }
        }
        return out;
      };
      const Distribution old_run = Summarize(calibrate(), 0);
      const Rounds next = calibrate();
      const double median = Summarize(next, 0).median_s;
      inside += median >= old_run.prediction_low_s &&
                median <= old_run.prediction_high_s;
      // The same rounds in any order say less.
      Rounds shuffled = next;
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      white += Summarize(shuffled, 0).prediction_high_s <=
               Summarize(next, 0).prediction_high_s;
    }
    INFO(rounds << " rounds: " << inside << " of " << kRuns);
    CHECK(inside > 0.80 * kRuns);
    CHECK(inside < 0.97 * kRuns);
    CHECK(white > 0.6 * kRuns);
  }
}

TEST_CASE("stopping rule: quiet samples stop it early", "[calibrate]") {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(100, 0.5);
  const StoppingRule rule;
  CHECK(Decide(rule, Drawn(2, 3, [&] { return normal(random); }), 0) ==
        Verdict::kGoOn);  // too few
  CHECK(Decide(rule, Drawn(4, 6, [&] { return normal(random); }), 0) ==
        Verdict::kPrecise);
}

TEST_CASE("stopping rule: noisy samples go on until they are many",
          "[calibrate]") {
  std::mt19937_64 random(9);
  std::lognormal_distribution<double> draw(0, 0.3);
  const StoppingRule rule;
  CHECK(Decide(rule, Drawn(4, 6, [&] { return draw(random); }), 0) ==
        Verdict::kGoOn);
  // 1.96 * 1.25 * 0.3 / sqrt(n) < 1 % from about 5400 on; less is allowed.
  CHECK(Decide({.max_samples = 20000},
               Drawn(4, 4000, [&] { return draw(random); }),
               0) == Verdict::kPrecise);
  CHECK(Decide(rule, Drawn(4, 500, [&] { return draw(random); }), 0) ==
        Verdict::kMaxSamples);
  CHECK(Decide(rule, Drawn(4, 6, [&] { return draw(random); }), 31) ==
        Verdict::kMaxTime);
}

TEST_CASE("stopping rule: a drift is not taken for precision", "[calibrate]") {
  double time = 100;
  const Rounds drifting = Drawn(10, 100, [&] { return time += 0.01; });
  const Distribution summary = Summarize(drifting, 0);
  // Order statistics alone are sure of the median.
  CHECK(summary.confidence_high_s - summary.confidence_low_s <
        0.02 * summary.median_s);
  CHECK(Decide({}, drifting, 0) == Verdict::kGoOn);
}

// 1 % each way: the halves may lie 2 % apart, and no more.
TEST_CASE(
    "stopping rule: the medians of the halves are held against each other",
    "[calibrate]") {
  const auto verdict = [](double early, double late) {
    Rounds rounds(2);
    // The middle 40 % are the same in both, so that the median itself is sure.
    for (int index = 0; index < 50; ++index) {
      rounds[0].push_back(index < 30 ? early : 101.5);
      rounds[1].push_back(index < 30 ? late : 101.5);
    }
    return Decide({}, rounds, 0);
  };
  CHECK(verdict(100.0, 103.0) == Verdict::kGoOn);
  CHECK(verdict(103.0, 100.0) == Verdict::kGoOn);
  CHECK(verdict(100.6, 102.4) == Verdict::kPrecise);
}

TEST_CASE("stopping rule: two modes go on", "[calibrate]") {
  int count = 0;
  const Rounds modes =
      Drawn(4, 50, [&] { return ++count % 2 == 0 ? 100.0 : 110.0; });
  CHECK(Decide({}, modes, 0) == Verdict::kGoOn);
}

TEST_CASE("stopping rule: outliers do not keep it going", "[calibrate]") {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal(100, 0.5);
  int count = 0;
  const Rounds rounds =
      Drawn(4, 50, [&] { return ++count % 10 == 0 ? 1000.0 : normal(random); });
  CHECK(Decide({}, rounds, 0) == Verdict::kPrecise);
}

}  // namespace
}  // namespace pipewright::statistics_test
