#include "sim/report/jitter_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "sim/base/quantity.h"

namespace pipewright {
namespace {

// 97.5 % quantile of Student's t by degrees of freedom, 1 to 30 (any table of
// the distribution); the normal one beyond.
double StudentQuantile(size_t freedom) {
  constexpr double kTable[] = {
      12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
      2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  return freedom <= std::size(kTable) ? kTable[freedom - 1] : 1.960;
}

}  // namespace

JitterReport ReportJitter(const RunSummary& run, uint64_t seed) {
  JitterReport report;
  report.seed = seed;
  const std::vector<double>& ends_s = run.iteration_end_s;
  for (size_t index = 1; index < ends_s.size(); ++index) {
    report.periods_s.push_back(ends_s[index] - ends_s[index - 1]);
  }
  if (ends_s.size() == 1) report.periods_s = ends_s;
  if (report.periods_s.empty()) return report;
  const auto count = static_cast<double>(report.periods_s.size());
  for (const double period_s : report.periods_s) {
    report.mean_s += period_s / count;
  }
  report.low_s = report.high_s = report.mean_s;
  if (report.periods_s.size() == 1) return report;
  double square = 0;
  for (const double period_s : report.periods_s) {
    square += (period_s - report.mean_s) * (period_s - report.mean_s);
  }
  const double half = StudentQuantile(report.periods_s.size() - 1) *
                      std::sqrt(square / (count - 1) / count);
  report.low_s -= half;
  report.high_s += half;
  return report;
}

std::string JitterNote(const JitterReport& report) {
  const std::string draw =
      absl::StrCat(" (jitter ", report.kind, ", seed ", report.seed, ")");
  if (report.periods_s.size() < 2) {
    return absl::StrCat("one drawn period, no interval", draw);
  }
  return absl::StrCat("mean of ", report.periods_s.size(),
                      " periods, 95 % interval ", FormatSeconds(report.low_s),
                      " to ", FormatSeconds(report.high_s), draw);
}

nlohmann::ordered_json JitterToJson(const JitterReport& report) {
  return {{"kind", report.kind},
          {"seed", report.seed},
          {"periods_s", report.periods_s},
          {"iteration_s_low", report.low_s},
          {"iteration_s_high", report.high_s}};
}

}  // namespace pipewright
