#include "sim/program/collective_phases.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace pipewright {
namespace {

// What a tree passes on at once: an eighth of NCCL's default buffer of 4 MiB
// (NCCL_BUFFSIZE, NCCL_STEPS). [framework source, bytes]
constexpr double kChunkBytes = 512.0 * 1024;

// The devices of the group on each node, for each list of DevicesThatMeet.
using Nodes = std::vector<std::vector<int>>;

std::vector<Nodes> NodesOfGroup(const Network& network,
                                const std::vector<Member>& members) {
  std::vector<Nodes> all;
  for (const std::vector<int>& meeting : DevicesThatMeet(network, members)) {
    std::map<int, std::vector<int>> nodes;
    for (const int device : meeting) {
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

// If devices of a rank straddle nodes, some of these may span more of them.
bool OnAsManyNodes(const std::vector<Nodes>& groups) {
  return std::all_of(groups.begin(), groups.end(), [&](const Nodes& nodes) {
    return nodes.size() == groups[0].size();
  });
}

// Edges that carry data at the same time, and what they put on the links.
class Edges {
 public:
  explicit Edges(const Cluster& cluster) : cluster_(cluster) {}

  void Add(int from, int to, double flows) {
    const std::vector<LinkId> route = cluster_.Route(from, to);
    for (const LinkId link : route) on_[link] += flows;
    latency_s_ = std::max(latency_s_, cluster_.Bundle({route}).latency_s);
  }
  double latency_s() const { return latency_s_; }
  std::vector<LinkLoad> loads() const {
    std::vector<LinkLoad> loads;
    for (const auto& [link, flows] : on_) loads.push_back({link, flows});
    return loads;
  }
  double StepSeconds(double bytes) const {
    return latency_s_ + bytes / cluster_.RateOf(loads());
  }

 private:
  const Cluster& cluster_;
  double latency_s_ = 0;
  std::map<LinkId, double> on_;
};

// The n-th rings of all devices of a rank turn at once.
CollectivePhase RingPhase(const Cluster& cluster,
                          const std::vector<std::vector<int>>& rings,
                          double bytes, bool all_reduce) {
  const auto n = static_cast<double>(rings[0].size());
  const double rounds = all_reduce ? 2 : 1;
  Edges edges(cluster);
  for (const std::vector<int>& ring : rings) {
    for (size_t at = 0; at < ring.size(); ++at) {
      edges.Add(ring[at], ring[(at + 1) % ring.size()], 1);
    }
  }
  return {.latency_s = rounds * (n - 1) * edges.latency_s(),
          .bytes = rounds * (n - 1) / n * bytes,
          .loads = edges.loads()};
}

// The way of a first chunk through a tree, step by step: what comes later is
// not on the links yet.
class Filling {
 public:
  enum Part { kChainUp, kTreeUp, kTreeDown, kChainDown };

  explicit Filling(const Cluster& cluster) : cluster_(cluster) {}
  // `step` of this part, from its first one.
  void Add(Part part, int step, int from, int to, double flows) {
    steps_.try_emplace({part, step}, cluster_)
        .first->second.Add(from, to, flows);
  }
  double Seconds(double chunk) const {
    double seconds = 0;
    for (const auto& [step, edges] : steps_) {
      seconds += edges.StepSeconds(chunk);
    }
    return seconds;
  }

 private:
  const Cluster& cluster_;
  std::map<std::pair<Part, int>, Edges> steps_;
};

// [node] how far it is from the root, and from its farthest leaf.
struct TreePlaces {
  explicit TreePlaces(int nodes) : depth(nodes + 1), height(nodes + 1) {
    for (int node = 1; node <= nodes; ++node) {
      for (int up = TreeParent(node, nodes); up != 0;
           up = TreeParent(up, nodes)) {
        height[up] = std::max(height[up], ++depth[node]);
      }
    }
  }
  std::vector<int> depth;
  std::vector<int> height;
};

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
  if (count < 2 || !OnAsManyNodes(groups)) return {};
  size_t heads = members.size();
  for (const Nodes& nodes : groups) {
    for (const std::vector<int>& devices : nodes) {
      heads = std::min(heads, devices.size());
    }
  }
  const TreePlaces places(count);
  // What climbs must come down again: both ways at once.
  Edges all(cluster);
  Filling filling(cluster);
  const auto add = [&](Filling::Part part, int step, int from, int to,
                       double flows) {
    all.Add(from, to, flows);
    filling.Add(part, step, from, to, flows);
  };
  for (const Nodes& nodes : groups) {
    for (size_t head = 0; head < heads; ++head) {
      for (const std::vector<int>& devices : nodes) {
        const auto size = static_cast<int>(devices.size());
        for (int at = 0; at + 1 < size; ++at) {
          const int near = devices[(head + at) % size];
          const int far = devices[(head + at + 1) % size];
          // For both trees.
          add(Filling::kChainUp, size - 2 - at, far, near, 2);
          add(Filling::kChainDown, at, near, far, 2);
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
          const int parent = TreeParent(place, count);
          if (parent == 0) continue;
          add(Filling::kTreeUp, places.height[place], device_at[place],
              device_at[parent], 1);
          add(Filling::kTreeDown, places.depth[place], device_at[parent],
              device_at[place], 1);
        }
      }
    }
  }
  CollectivePhase phase = {.bytes = bytes / (2 * static_cast<double>(heads)),
                           .loads = all.loads()};
  const double chunk = phase.bytes / std::ceil(phase.bytes / kChunkBytes);
  // Until the last one has got its first chunk; the others follow it.
  phase.latency_s = std::max(
      0.0, filling.Seconds(chunk) - chunk / cluster.RateOf(phase.loads));
  return {phase};
}

std::vector<CollectivePhase> HierarchicalPhases(
    const Network& network, CollectiveKind kind, double bytes,
    const std::vector<Member>& members) {
  const Cluster& cluster = *network.cluster;
  const std::vector<Nodes> groups = NodesOfGroup(network, members);
  const size_t count = groups[0].size();
  const size_t each = groups[0][0].size();
  if (count < 2 || each < 2 || !OnAsManyNodes(groups)) return {};
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
