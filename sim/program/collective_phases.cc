#include "sim/program/collective_phases.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace pipewright {
namespace {

// What a tree passes on at once: an eighth of NCCL's default buffer of 4 MiB
// (NCCL_BUFFSIZE, NCCL_STEPS).
constexpr double kChunkBytes = 512.0 * 1024;

// The devices of the group on each node, for each device of a rank.
using Nodes = std::vector<std::vector<int>>;

std::vector<Nodes> NodesOfGroup(const Network& network,
                                const std::vector<Member>& members) {
  std::vector<Nodes> all;
  for (int index = 0; index < network.mapping->devices_per_rank(); ++index) {
    std::map<int, std::vector<int>> nodes;
    for (const Member& member : members) {
      const int device =
          network.mapping->DeviceOf(member.replica, member.rank, index);
      nodes[network.cluster->devices()[device].node].push_back(device);
    }
    Nodes& own = all.emplace_back();
    for (auto& [node, devices] : nodes) {
      std::sort(devices.begin(), devices.end());
      own.push_back(std::move(devices));
    }
  }
  return all;
}

// Edges of one kind, and what all of them put on the links.
class Edges {
 public:
  explicit Edges(const Cluster& cluster) : cluster_(cluster) {}

  void Add(int from, int to, double flows, std::map<LinkId, double>* on) {
    const std::vector<LinkId> route = cluster_.Route(from, to);
    for (const LinkId link : route) (*on)[link] += flows;
    latency_s_ = std::max(latency_s_, cluster_.Bundle({route}).latency_s);
    routes_.push_back(route);
  }
  double latency_s() const { return latency_s_; }
  // Of a flow of the slowest of them while `on` is on the links.
  double RateOf(const std::map<LinkId, double>& on) const {
    double rate = 0;
    for (const std::vector<LinkId>& route : routes_) {
      std::vector<LinkLoad> loads;
      for (const LinkId link : route) loads.push_back({link, on.at(link)});
      const double own = cluster_.RateOf(loads);
      rate = rate == 0 ? own : std::min(rate, own);
    }
    return rate;
  }

 private:
  const Cluster& cluster_;
  double latency_s_ = 0;
  std::vector<std::vector<LinkId>> routes_;
};

std::vector<LinkLoad> LoadsOf(const std::map<LinkId, double>& on) {
  std::vector<LinkLoad> loads;
  for (const auto& [link, flows] : on) loads.push_back({link, flows});
  return loads;
}

// The n-th rings of all devices of a rank turn at once.
CollectivePhase RingPhase(const Cluster& cluster,
                          const std::vector<std::vector<int>>& rings,
                          double bytes, bool all_reduce) {
  const auto n = static_cast<double>(rings[0].size());
  const double rounds = all_reduce ? 2 : 1;
  Edges edges(cluster);
  std::map<LinkId, double> on;
  for (const std::vector<int>& ring : rings) {
    for (size_t at = 0; at < ring.size(); ++at) {
      edges.Add(ring[at], ring[(at + 1) % ring.size()], 1, &on);
    }
  }
  return {.latency_s = rounds * (n - 1) * edges.latency_s(),
          .bytes = rounds * (n - 1) / n * bytes,
          .loads = LoadsOf(on)};
}

}  // namespace

int TreeParent(int node, int nodes) {
  const int bit = node & -node;
  const int above = (node ^ bit) | bit << 1;
  return above <= nodes ? above : node ^ bit;
}

int PlaceInSecondTree(int node, int nodes) {
  if (nodes % 2 == 0) return nodes + 1 - node;
  return node == 1 ? nodes : node - 1;
}

std::vector<CollectivePhase> TreePhases(const Network& network, double bytes,
                                        const std::vector<Member>& members) {
  const Cluster& cluster = *network.cluster;
  const std::vector<Nodes> groups = NodesOfGroup(network, members);
  const auto count = static_cast<int>(groups[0].size());
  if (count < 2) return {};
  size_t heads = members.size();
  size_t longest = 1;
  for (const Nodes& nodes : groups) {
    for (const std::vector<int>& devices : nodes) {
      heads = std::min(heads, devices.size());
      longest = std::max(longest, devices.size());
    }
  }
  // What climbs must come down again: both ways at once.
  Edges chains(cluster);
  Edges trees(cluster);
  std::map<LinkId, double> on;
  int depth = 0;
  for (const Nodes& nodes : groups) {
    for (size_t head = 0; head < heads; ++head) {
      for (const std::vector<int>& devices : nodes) {
        for (size_t at = 0; at + 1 < devices.size(); ++at) {
          const int near = devices[(head + at) % devices.size()];
          const int far = devices[(head + at + 1) % devices.size()];
          chains.Add(far, near, 2, &on);  // for both trees
          chains.Add(near, far, 2, &on);
        }
      }
      for (const bool second : {false, true}) {
        std::vector<int> device_at(count + 1);
        for (int node = 1; node <= count; ++node) {
          const std::vector<int>& devices = nodes[node - 1];
          device_at[second ? PlaceInSecondTree(node, count) : node] =
              devices[head % devices.size()];
        }
        for (int place = 1; place <= count; ++place) {
          int above = 0;
          for (int up = TreeParent(place, count); up != 0;
               up = TreeParent(up, count)) {
            ++above;
          }
          depth = std::max(depth, above);
          const int parent = TreeParent(place, count);
          if (parent == 0) continue;
          trees.Add(device_at[place], device_at[parent], 1, &on);
          trees.Add(device_at[parent], device_at[place], 1, &on);
        }
      }
    }
  }
  CollectivePhase phase = {.bytes = bytes / (2 * static_cast<double>(heads)),
                           .loads = LoadsOf(on)};
  const auto chain_steps = 2 * static_cast<double>(longest - 1);
  const double tree_steps = 2 * depth;
  const double chunk = std::min(kChunkBytes, phase.bytes);
  // Until the last one has got its first chunk.
  double fill_s = tree_steps * chunk / trees.RateOf(on) -
                  chunk / cluster.RateOf(phase.loads);
  if (chain_steps > 0) fill_s += chain_steps * chunk / chains.RateOf(on);
  phase.latency_s = chain_steps * chains.latency_s() +
                    tree_steps * trees.latency_s() + std::max(0.0, fill_s);
  return {phase};
}

std::vector<CollectivePhase> HierarchicalPhases(
    const Network& network, CollectiveKind kind, double bytes,
    const std::vector<Member>& members) {
  const Cluster& cluster = *network.cluster;
  const std::vector<Nodes> groups = NodesOfGroup(network, members);
  const size_t count = groups[0].size();
  const size_t each = groups[0][0].size();
  if (count < 2 || each < 2) return {};
  std::vector<std::vector<int>> inside;
  std::vector<std::vector<int>> between;
  for (const Nodes& nodes : groups) {
    for (const std::vector<int>& devices : nodes) {
      if (devices.size() != each) return {};
      inside.push_back(devices);
    }
    for (size_t place = 0; place < each; ++place) {
      std::vector<int>& ring = between.emplace_back();
      for (const std::vector<int>& devices : nodes) {
        ring.push_back(devices[place]);
      }
    }
  }
  const bool all_reduce = kind == CollectiveKind::kAllReduce;
  const CollectivePhase in_nodes = RingPhase(cluster, inside, bytes, false);
  const CollectivePhase over_nodes = RingPhase(
      cluster, between, bytes / static_cast<double>(each), all_reduce);
  if (all_reduce) return {in_nodes, over_nodes, in_nodes};
  if (kind == CollectiveKind::kReduceScatter) return {in_nodes, over_nodes};
  return {over_nodes, in_nodes};
}

double SecondsOf(const Cluster& cluster,
                 const std::vector<CollectivePhase>& phases) {
  double seconds = 0;
  for (const CollectivePhase& phase : phases) {
    seconds += phase.latency_s + phase.bytes / cluster.RateOf(phase.loads);
  }
  return seconds;
}

}  // namespace pipewright
