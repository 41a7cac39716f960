#include "sim/engine/sharing.h"

#include <cstddef>

namespace pipewright {

std::vector<SourcePlan> PlanSharing(const Cluster& cluster,
                                    const std::vector<TrafficSource>& sources) {
  std::vector<int> users(cluster.links().size(), 0);
  for (const TrafficSource& source : sources) {
    for (const LinkId link : source.links) {
      users[link] += source.overlaps_itself ? 2 : 1;
    }
  }
  // A link on which every user meets others only there, and which none of
  // them can fill through a narrower link of its own.
  std::vector<char> queues(cluster.links().size(), 1);
  std::vector<SourcePlan> plans(sources.size());
  std::vector<LinkId> met_on(sources.size(), -1);
  for (size_t index = 0; index < sources.size(); ++index) {
    const TrafficSource& source = sources[index];
    SourcePlan& plan = plans[index];
    plan.latency_s = cluster.LatencyOf(source.links);
    plan.bytes_per_s = cluster.BandwidthOf(source.links);
    bool private_overlap = source.overlaps_itself;
    int shared = 0;
    for (const LinkId link : source.links) {
      private_overlap &= users[link] == 2;
      shared += users[link] > 1 ? 1 : 0;
      if (users[link] > 1) met_on[index] = link;
    }
    if (shared == 0) continue;
    if (private_overlap) {
      // It meets only itself, on all of its links: the narrowest decides.
      for (const LinkId link : source.links) {
        if (cluster.links()[link].bytes_per_s == plan.bytes_per_s) {
          met_on[index] = link;
        }
      }
      plan.sharing = Sharing::kQueue;
      continue;
    }
    const bool narrowest =
        cluster.links()[met_on[index]].bytes_per_s == plan.bytes_per_s;
    plan.sharing = shared == 1 && narrowest ? Sharing::kQueue : Sharing::kFlow;
    if (plan.sharing == Sharing::kQueue) continue;
    for (const LinkId link : source.links) queues[link] = 0;
  }
  for (size_t index = 0; index < sources.size(); ++index) {
    SourcePlan& plan = plans[index];
    if (plan.sharing != Sharing::kQueue) continue;
    plan.link = met_on[index];
    if (queues[plan.link] == 0) plan.sharing = Sharing::kFlow;
  }
  return plans;
}

}  // namespace pipewright
