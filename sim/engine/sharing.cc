#include "sim/engine/sharing.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace pipewright {

namespace {

// More than this over what a link has is more than rounding.
constexpr double kAboveRate = 1 + 1e-12;

}  // namespace

std::vector<SourcePlan> PlanSharing(const Cluster& cluster,
                                    const std::vector<TrafficSource>& sources,
                                    const std::vector<LinkId>& pooled) {
  std::vector<int> users(cluster.links().size(), 0);
  std::vector<int> owners(cluster.links().size(), -1);  // the first one
  for (const TrafficSource& source : sources) {
    for (const LinkLoad& load : source.flows.loads) {
      int& owner = owners[load.link];
      if (source.owner >= 0 && owner == source.owner) continue;
      if (owner < 0) owner = source.owner;
      users[load.link] += source.overlaps_itself ? 2 : 1;
    }
  }
  // What all users of a link want at most. One that can give it to them keeps
  // nobody from anything.
  std::vector<double> wanted_per_s(cluster.links().size(), 0);
  for (const TrafficSource& source : sources) {
    const double rate =
        source.overlaps_itself
            ? std::numeric_limits<double>::infinity()
            : std::min(source.most_per_s, cluster.RateOf(source.flows.loads));
    for (const LinkLoad& load : source.flows.loads) {
      wanted_per_s[load.link] += load.flows * rate;
    }
  }
  const auto can_meet = [&](LinkId link) {
    return users[link] > 1 &&
           wanted_per_s[link] > kAboveRate * cluster.links()[link].bytes_per_s;
  };
  // A link on which every user meets others only there, and which none of
  // them can fill through a narrower link of its own.
  std::vector<char> queues(cluster.links().size(), 1);
  for (const LinkId link : pooled) {
    users[link] += 2;
    wanted_per_s[link] = std::numeric_limits<double>::infinity();
    queues[link] = 0;
  }
  std::vector<SourcePlan> plans(sources.size());
  std::vector<LinkLoad> met_on(sources.size(), LinkLoad{-1, 0});
  for (size_t index = 0; index < sources.size(); ++index) {
    const TrafficSource& source = sources[index];
    SourcePlan& plan = plans[index];
    plan.latency_s = source.flows.latency_s;
    plan.bytes_per_s =
        std::min(source.most_per_s, cluster.RateOf(source.flows.loads));
    const auto is_narrowest = [&](const LinkLoad& load) {
      return cluster.links()[load.link].bytes_per_s / load.flows ==
             plan.bytes_per_s;
    };
    bool private_overlap = source.overlaps_itself;
    for (const LinkLoad& load : source.flows.loads) {
      private_overlap &= users[load.link] == 2;
      if (can_meet(load.link)) plan.shared.push_back(load);
    }
    plan.pool = source.pool;
    if (source.pool >= 0) {
      plan.sharing = Sharing::kFlow;
      for (const LinkLoad& load : source.flows.loads) queues[load.link] = 0;
      continue;
    }
    if (plan.shared.empty()) continue;
    met_on[index] = plan.shared.back();
    if (private_overlap) {
      // It meets only itself, on all of its links: the narrowest decides.
      for (const LinkLoad& load : source.flows.loads) {
        if (is_narrowest(load)) met_on[index] = load;
      }
      plan.sharing = Sharing::kQueue;
      continue;
    }
    plan.sharing = plan.shared.size() == 1 && is_narrowest(met_on[index])
                       ? Sharing::kQueue
                       : Sharing::kFlow;
    if (plan.sharing == Sharing::kQueue) continue;
    for (const LinkLoad& load : source.flows.loads) queues[load.link] = 0;
  }
  for (size_t index = 0; index < sources.size(); ++index) {
    SourcePlan& plan = plans[index];
    if (plan.sharing != Sharing::kQueue) continue;
    plan.link = met_on[index].link;
    plan.flows = met_on[index].flows;
    if (queues[plan.link] == 0) plan.sharing = Sharing::kFlow;
  }
  return plans;
}

}  // namespace pipewright
