#include "tests/support/step_flows.h"

#include <algorithm>
#include <cstdint>
#include <queue>
#include <utility>

#include "sim/base/check.h"
#include "sim/engine/fluid_links.h"

namespace pipewright {

double LastEnd(const Cluster& cluster, const std::vector<StepFlow>& steps) {
  std::vector<SourcePlan> plans;
  std::vector<std::vector<int>> next(steps.size());
  std::vector<size_t> missing(steps.size());
  using Start = std::pair<double, int>;
  std::priority_queue<Start, std::vector<Start>, std::greater<>> starts;
  for (size_t step = 0; step < steps.size(); ++step) {
    const FlowBundle flow = cluster.Bundle({steps[step].links});
    plans.push_back({.sharing = Sharing::kFlow,
                     .bytes_per_s = cluster.RateOf(flow.loads),
                     .shared = flow.loads});
    missing[step] = steps[step].after.size();
    for (const int other : steps[step].after) {
      next[other].push_back(static_cast<int>(step));
    }
    if (missing[step] == 0) starts.push({steps[step].latency_s, step});
  }
  FluidLinks links(cluster, plans);
  double now_s = 0;
  size_t ended = 0;
  while (true) {
    const double end_s = links.NextEnd(now_s);
    if (!starts.empty() && starts.top().first <= end_s) {
      const auto [start_s, step] = starts.top();
      starts.pop();
      now_s = start_s;
      links.Start(now_s, step, steps[step].bytes, static_cast<uint32_t>(step));
      continue;
    }
    uint32_t step = 0;
    if (ended == steps.size()) return now_s;
    now_s = end_s;
    bool any = false;
    while (links.TakeEnded(now_s, &step)) {
      any = true;
      ++ended;
      for (const int other : next[step]) {
        if (--missing[other] > 0) continue;
        starts.push({now_s + steps[other].latency_s, other});
      }
    }
    PW_CHECK(any);
  }
}

}  // namespace pipewright
