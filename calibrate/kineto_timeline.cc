#include "calibrate/kineto_timeline.h"

#include <algorithm>
#include <cstddef>

namespace pipewright {

std::array<double, kNumTraceParts> ShareTimeline(
    std::vector<PartKernel> kernels) {
  std::array<double, kNumTraceParts> us = {};
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const PartKernel& a, const PartKernel& b) {
                     return a.start_us < b.start_us;
                   });
  const auto add = [&us](TracePart part, double more) {
    us[static_cast<size_t>(part)] += more;
  };
  std::vector<PartKernel> running;  // by start
  size_t next = 0;
  double at = kernels.empty() ? 0 : kernels[0].start_us;
  while (true) {
    while (next < kernels.size() && kernels[next].start_us <= at) {
      running.push_back(kernels[next++]);
    }
    running.erase(
        std::remove_if(running.begin(), running.end(),
                       [at](const PartKernel& k) { return k.end_us <= at; }),
        running.end());
    if (running.empty()) {
      if (next == kernels.size()) return us;
      add(kernels[next].part, kernels[next].start_us - at);
      at = kernels[next].start_us;
      continue;
    }
    double until = running[0].end_us;
    TracePart part = TracePart::kCommunication;
    for (const PartKernel& kernel : running) {
      until = std::min(until, kernel.end_us);
      if (part == TracePart::kCommunication) part = kernel.part;
    }
    if (next < kernels.size()) until = std::min(until, kernels[next].start_us);
    add(part, until - at);
    at = until;
  }
}

}  // namespace pipewright
