#include "sim/report/peak_memory.h"

#include <algorithm>

namespace pipewright {

std::vector<double> PeakMemoryOf(const Report& report) {
  std::vector<double> peaks;
  if (!report.memory) return peaks;
  // Classes of slow devices hold the same as all others.
  if (report.dp_classes &&
      !report.dp_classes->classes[0].peak_memory_bytes.empty()) {
    return MostOfClasses(*report.dp_classes, &DpClassReport::peak_memory_bytes);
  }
  for (const RankMemory& rank : report.memory->memory->ranks) {
    peaks.push_back(static_cast<double>(rank.peak()));
  }
  return peaks;
}

double MostPeakMemoryOf(const Report& report) {
  const std::vector<double> peaks = PeakMemoryOf(report);
  return peaks.empty() ? 0 : *std::max_element(peaks.begin(), peaks.end());
}

}  // namespace pipewright
