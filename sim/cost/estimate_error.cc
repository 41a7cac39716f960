#include "sim/cost/estimate_error.h"

#include <cmath>

#include "absl/strings/match.h"
#include "sim/cost/student.h"

namespace pipewright {

// A test holds these against `reproduce`.
std::vector<EstimatedStep> EstimatedSteps(absl::string_view device) {
  if (absl::StartsWith(device, "a100")) {
    // Seconds of a step.
    return {{"megatron-table1, gpt-39.1b", 14.45, 14.06},
            {"megatron-table1, gpt-76.1b", 16.06, 14.49},
            {"megatron-table1, gpt-145.6b", 24.82, 23.46},
            {"megatron-table1, gpt-310.1b", 37.61, 34.87},
            {"megatron-table1, gpt-529.6b", 54.09, 50.47},
            {"megatron-table1, gpt-1008b", 102.4, 100.17},
            {"korthikanti-table5, gpt-22b, full", 1.42, 1.41},
            {"korthikanti-table5, gpt-22b", 1.1, 1.04},
            {"korthikanti-table5, gpt-175b, full", 18.13, 18.33},
            {"korthikanti-table5, gpt-175b", 13.75, 13.5},
            {"korthikanti-table5, gpt-530b, full", 49.05, 50.16},
            {"korthikanti-table5, gpt-530b", 37.83, 37.22},
            {"korthikanti-table5, gpt-1t, full", 94.42, 99.88},
            {"korthikanti-table5, gpt-1t", 71.49, 75.03}};
  }
  if (absl::StartsWith(device, "h100")) {
    // The other way round, % of the peak: a step takes its inverse.
    return {{"llama3-table4, 8192 GPUs", 1 / 43.0, 1 / 59.7},
            {"llama3-table4, 16384 GPUs", 1 / 41.0, 1 / 55.4}};
  }
  return {};
}

std::optional<RatioInterval> EstimateError(absl::string_view device) {
  const std::vector<EstimatedStep> steps = EstimatedSteps(device);
  if (steps.size() < 2) return {};
  const auto count = static_cast<double>(steps.size());
  double mean = 0;
  for (const EstimatedStep& step : steps) {
    mean += std::log(step.ratio()) / count;
  }
  double square = 0;
  for (const EstimatedStep& step : steps) {
    const double off = std::log(step.ratio()) - mean;
    square += off * off;
  }
  const double half = StudentT(0.9, static_cast<int64_t>(steps.size()) - 1) *
                      std::sqrt(square / (count - 1) * (1 + 1 / count));
  return RatioInterval{std::exp(mean - half), std::exp(mean + half)};
}

}  // namespace pipewright
