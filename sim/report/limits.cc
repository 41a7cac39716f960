#include "sim/report/limits.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace pipewright {

std::vector<StepLimit> LimitsOf(const Report& report) {
  const double step = report.iteration_s;
  std::vector<StepLimit> limits;
  if (step <= 0) return limits;
  const double busy = std::min(report.busy_s, step);
  const double span = std::clamp(report.span_s.global, busy, step);
  limits.push_back({"passes of the busiest rank", busy / step});
  limits.push_back({"bubble: warm-up, cool-down and waiting for others",
                    (span - busy) / step});
  limits.push_back(
      {"between the passes of two steps: gradients, parameters, "
       "optimizer",
       (step - span) / step});
  std::stable_sort(limits.begin(), limits.end(),
                   [](const StepLimit& one, const StepLimit& other) {
                     return one.share > other.share;
                   });
  return limits;
}

std::string LimitsText(const Report& report) {
  std::string text;
  for (const StepLimit& limit : LimitsOf(report)) {
    absl::StrAppendFormat(&text, "%s%.1f %% %s", text.empty() ? "" : "; ",
                          100 * limit.share, limit.name);
  }
  return text;
}

}  // namespace pipewright
