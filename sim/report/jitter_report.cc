#include "sim/report/jitter_report.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/base/statistics.h"

namespace pipewright {

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
  if (report.periods_s.size() == 1) return report;
  double square = 0;
  for (const double period_s : report.periods_s) {
    square += (period_s - report.mean_s) * (period_s - report.mean_s);
  }
  const double half =
      StudentT(0.95, static_cast<int64_t>(report.periods_s.size()) - 1) *
      std::sqrt(square / (count - 1) / count);
  report.interval = {report.mean_s - half, report.mean_s + half};
  return report;
}

std::string JitterNote(const JitterReport& report) {
  const std::string draw =
      absl::StrCat(" (jitter ", report.kind, ", seed ", report.seed, ")");
  if (!report.interval) {
    return absl::StrCat("one drawn period, no interval", draw);
  }
  return absl::StrCat("mean of ", report.periods_s.size(),
                      " periods, 95 % interval ",
                      FormatSeconds(report.interval->low_s), " to ",
                      FormatSeconds(report.interval->high_s), draw);
}

Json JitterToJson(const JitterReport& report) {
  const auto& interval = report.interval;
  return {{"kind", report.kind},
          {"seed", report.seed},
          {"periods_s", report.periods_s},
          {"iteration_s_low", interval ? Json(interval->low_s) : Json()},
          {"iteration_s_high", interval ? Json(interval->high_s) : Json()}};
}

}  // namespace pipewright
