#include "sim/program/ring_traffic.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace pipewright {

std::vector<std::vector<int>> Rings(const Cluster& cluster,
                                    std::vector<int> devices) {
  std::sort(devices.begin(), devices.end());
  std::map<int, std::vector<int>> nodes;
  for (const int device : devices) {
    nodes[cluster.devices()[device].node].push_back(device);
  }
  size_t rings = 1;
  if (nodes.size() > 1) {
    rings = devices.size();
    for (const auto& [node, members] : nodes) {
      rings = std::min(rings, members.size());
    }
  }
  std::vector<std::vector<int>> orders(rings);
  for (size_t ring = 0; ring < rings; ++ring) {
    for (const auto& [node, members] : nodes) {
      for (size_t index = 0; index < members.size(); ++index) {
        orders[ring].push_back(members[(index + ring) % members.size()]);
      }
    }
  }
  return orders;
}

RingTraffic RingTrafficOf(const Cluster& cluster,
                          std::vector<std::vector<int>> groups) {
  // [group][ring]
  std::vector<std::vector<std::vector<int>>> orders;
  const size_t members = groups[0].size();
  size_t rings = members;
  for (std::vector<int>& devices : groups) {
    orders.push_back(Rings(cluster, std::move(devices)));
    rings = std::min(rings, orders.back().size());
  }
  RingTraffic traffic;
  traffic.links.rings = static_cast<int>(rings);
  absl::flat_hash_map<LinkId, double> flows_on;
  for (size_t ring = 0; ring < rings; ++ring) {
    for (size_t at = 0; at < members; ++at) {
      std::vector<std::vector<LinkId>> routes;
      for (const std::vector<std::vector<int>>& own : orders) {
        const std::vector<int>& order = own[ring];
        routes.push_back(
            cluster.Route(order[at], order[(at + 1) % order.size()]));
        for (const LinkId link : routes.back()) ++flows_on[link];
      }
      const FlowBundle edge = cluster.Bundle(routes);
      traffic.links.latency_s =
          std::max(traffic.links.latency_s, edge.latency_s);
      traffic.links.edge_bytes_per_s =
          std::min(traffic.links.edge_bytes_per_s, cluster.RateOf(edge.loads));
    }
  }
  for (const auto& [link, flows] : flows_on) {
    traffic.loads.push_back({link, flows});
  }
  std::sort(traffic.loads.begin(), traffic.loads.end(),
            [](const LinkLoad& left, const LinkLoad& right) {
              return left.link < right.link;
            });
  traffic.links.ring_bytes_per_s = cluster.RateOf(traffic.loads);
  return traffic;
}

std::shared_ptr<const RingTraffic> KnownRingTraffic(
    const std::shared_ptr<const Cluster>& cluster,
    std::vector<std::vector<int>> groups) {
  // Devices of groups and links of traffic together, some 25 MB: as many as a
  // plan of thousands of devices goes through again and again.
  constexpr size_t kMostKept = size_t{1} << 20;
  struct Known {
    std::weak_ptr<const Cluster> cluster;
    size_t kept = 0;
    std::map<std::vector<std::vector<int>>, std::shared_ptr<const RingTraffic>>
        traffic;
  };
  static std::mutex mutex;
  static auto* const known = new Known();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (known->cluster.lock() != cluster || known->kept >= kMostKept) {
      known->cluster = cluster;
      known->traffic.clear();
      known->kept = 0;
    }
    const auto found = known->traffic.find(groups);
    if (found != known->traffic.end()) return found->second;
  }
  auto traffic =
      std::make_shared<const RingTraffic>(RingTrafficOf(*cluster, groups));
  const std::lock_guard<std::mutex> lock(mutex);
  if (known->cluster.lock() == cluster) {
    known->kept += groups.size() * groups[0].size() + traffic->loads.size();
    known->traffic.try_emplace(std::move(groups), traffic);
  }
  return traffic;
}

}  // namespace pipewright
