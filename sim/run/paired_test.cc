#include "sim/run/paired_test.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sim/base/check.h"
#include "sim/base/statistics.h"

namespace pipewright {
namespace {

// Differences that spread less than this of the times are one number that
// rounding has blurred.
constexpr double kRounding = 1e-12;

PairedTest Test(const std::vector<double>& first,
                const std::vector<double>& second) {
  const auto count = static_cast<double>(first.size());
  PairedTest test;
  double size = 0;
  for (size_t draw = 0; draw < first.size(); ++draw) {
    test.difference += (second[draw] - first[draw]) / count;
    size = std::max({size, std::abs(first[draw]), std::abs(second[draw])});
  }
  double square = 0;
  for (size_t draw = 0; draw < first.size(); ++draw) {
    const double off = second[draw] - first[draw] - test.difference;
    square += off * off;
  }
  const double error = std::sqrt(square / (count - 1) / count);
  const auto degrees = static_cast<int64_t>(first.size()) - 1;
  if (error <= kRounding * size) {
    test.p = std::abs(test.difference) <= kRounding * size ? 1 : 0;
    return test;
  }
  test.t = test.difference / error;
  test.half = StudentT(0.95, degrees) * error;
  test.p = 1 - StudentInside(std::abs(test.t), degrees);
  return test;
}

}  // namespace

std::vector<PairedTest> TestPairs(
    const std::vector<std::vector<double>>& samples) {
  std::vector<PairedTest> tests;
  for (size_t first = 0; first < samples.size(); ++first) {
    PW_CHECK(samples[first].size() == samples[0].size());
    PW_CHECK(samples[first].size() >= 2);
    for (size_t second = first + 1; second < samples.size(); ++second) {
      tests.push_back(Test(samples[first], samples[second]));
      tests.back().first = first;
      tests.back().second = second;
    }
  }
  std::vector<PairedTest*> by_p;
  for (PairedTest& test : tests) by_p.push_back(&test);
  std::stable_sort(by_p.begin(), by_p.end(),
                   [](const auto* a, const auto* b) { return a->p < b->p; });
  for (size_t place = 0; place < by_p.size(); ++place) {
    const auto left = static_cast<double>(by_p.size() - place);
    if (by_p[place]->p > kPairedLevel / left) break;
    by_p[place]->significant = true;
  }
  return tests;
}

}  // namespace pipewright
