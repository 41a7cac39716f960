// Is one strategy faster than another, or is it chance? Both are simulated with
// the same draws, and the differences draw by draw are tested.
//
// Statistic: Student's paired t, mean difference over its standard error
// (Student, "The probable error of a mean", Biometrika 6, 1908), two-sided,
// count - 1 degrees of freedom. Several pairs: Holm's step-down rule keeps the
// chance of one false claim at kPairedLevel (Holm, "A simple sequentially
// rejective multiple test procedure", Scandinavian Journal of Statistics 6,
// 1979).
#pragma once

#include <cstddef>
#include <vector>

namespace pipewright {

inline constexpr double kPairedLevel = 0.05;

struct PairedTest {
  size_t first = 0;  // index of a strategy
  size_t second = 0;
  double difference = 0;  // mean of second - first, in the samples' unit
  double half = 0;        // half of its 95 % interval
  double t = 0;           // 0 where all differences are the same
  double p = 1;           // two-sided; 0: all differences are the same
  bool significant = false;
};

// One a pair of strategies, [strategy][draw] -> time; equally many draws each,
// at least two.
std::vector<PairedTest> TestPairs(
    const std::vector<std::vector<double>>& samples);

}  // namespace pipewright
