#include "sim/program/network_time.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sim/base/check.h"

namespace pipewright {

namespace {

// A route for each device of a rank.
template <class RouteOfDevice>
FlowBundle FlowsOf(const Network& network, RouteOfDevice route) {
  if (network.cluster == nullptr) return {};
  std::vector<std::vector<LinkId>> routes;
  for (int index = 0; index < network.mapping->devices_per_rank(); ++index) {
    routes.push_back(route(index));
  }
  return network.cluster->Bundle(routes);
}

}  // namespace

FlowBundle FlowsBetween(const Network& network, int replica, int from_rank,
                        int to_rank) {
  return FlowsOf(network, [&](int index) {
    return network.cluster->Route(
        network.mapping->DeviceOf(replica, from_rank, index),
        network.mapping->DeviceOf(replica, to_rank, index));
  });
}

FlowBundle HostFlows(const Network& network, int replica, int rank,
                     bool to_host) {
  return FlowsOf(network, [&](int index) {
    const int device = network.mapping->DeviceOf(replica, rank, index);
    return to_host ? network.cluster->DeviceToHost(device)
                   : network.cluster->HostToDevice(device);
  });
}

double SecondsOf(const Cluster& cluster, const FlowBundle& flows,
                 double bytes) {
  return flows.latency_s + bytes / cluster.RateOf(flows.loads);
}

double TransferSeconds(const Program& program, const Channel& channel,
                       int replica) {
  if (channel.from_rank == channel.to_rank) return 0;
  const Network& network = program.network;
  if (network.cluster == nullptr) return network.hop_s;
  return SecondsOf(
      *network.cluster,
      FlowsBetween(network, replica, channel.from_rank, channel.to_rank),
      channel.bytes);
}

double CopySeconds(const Program& program, const Lane& lane, PassKind kind,
                   int replica, int rank) {
  if (program.network.cluster == nullptr || lane.bytes == 0) {
    return lane.seconds;
  }
  return SecondsOf(
      *program.network.cluster,
      HostFlows(program.network, replica, rank, kind == PassKind::kOffload),
      lane.bytes);
}

FlowBundle OneSidedFlows(const Program& program, const SideOp& op, int replica,
                         int rank) {
  const Network& network = program.network;
  const int peer_replica = (replica + op.peer_offset) % program.replicas;
  return FlowsOf(network, [&](int index) {
    const int peer = network.mapping->DeviceOf(peer_replica, op.peer, index);
    const int own = network.mapping->DeviceOf(replica, rank, index);
    return op.kind == OpKind::kPull ? network.cluster->Route(peer, own)
                                    : network.cluster->Route(own, peer);
  });
}

double OneSidedSeconds(const Program& program, const SideOp& op, int replica,
                       int rank) {
  if (op.peer == rank && op.peer_offset % program.replicas == 0) return 0;
  if (program.network.cluster == nullptr) return program.network.hop_s;
  return SecondsOf(*program.network.cluster,
                   OneSidedFlows(program, op, replica, rank), op.bytes);
}

std::vector<Member> GroupMembers(const Program& program, const Group& group,
                                 int replica) {
  std::vector<Member> members;
  for (int other = 0; other < program.replicas; ++other) {
    if (group.span == Group::Span::kRanks && other != replica) continue;
    for (const int rank : group.ranks) members.push_back({other, rank});
  }
  return members;
}

namespace {

// Steps of a ring and the share of the buffer that crosses each of its edges.
struct RingShape {
  double steps;
  double share;
};

RingShape ShapeOfRing(OpKind kind, int members) {
  const double n = members;
  const double once = (n - 1) / n;
  switch (kind) {
    case OpKind::kAllReduce:
      return {2 * (n - 1), 2 * once};
    case OpKind::kReduceScatter:
    case OpKind::kAllGather:
      return {n - 1, once};
    default:
      return {n - 1, 0};
  }
}

}  // namespace

namespace {

// The orders of the members on their rings. Devices of one node stand next to
// each other. Over several nodes there is a ring for each device that every
// node has in the group, and each ring leaves the nodes through other devices,
// so that it has network cards of its own.
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

// What all rings of a group put on the links.
struct RingTraffic {
  double latency_s = 0;  // of the longest edge
  // Of the slowest edge between two members alone, all their devices at once.
  double edge_bytes_per_s = std::numeric_limits<double>::infinity();
  int rings = 1;  // that divide the buffer of a device
  std::vector<LinkLoad> loads;
};

RingTraffic TrafficOf(const Network& network,
                      const std::vector<Member>& members) {
  const Cluster& cluster = *network.cluster;
  // [index of a device in its rank][ring]
  std::vector<std::vector<std::vector<int>>> orders;
  size_t rings = members.size();
  for (int index = 0; index < network.mapping->devices_per_rank(); ++index) {
    std::vector<int> devices;
    for (const Member& member : members) {
      devices.push_back(
          network.mapping->DeviceOf(member.replica, member.rank, index));
    }
    orders.push_back(Rings(cluster, std::move(devices)));
    rings = std::min(rings, orders.back().size());
  }
  RingTraffic traffic;
  traffic.rings = static_cast<int>(rings);
  absl::flat_hash_map<LinkId, int> flows_on;
  for (size_t ring = 0; ring < rings; ++ring) {
    for (size_t at = 0; at < members.size(); ++at) {
      std::vector<std::vector<LinkId>> routes;
      for (const std::vector<std::vector<int>>& own : orders) {
        const std::vector<int>& order = own[ring];
        routes.push_back(
            cluster.Route(order[at], order[(at + 1) % order.size()]));
        for (const LinkId link : routes.back()) ++flows_on[link];
      }
      const FlowBundle edge = cluster.Bundle(routes);
      traffic.latency_s = std::max(traffic.latency_s, edge.latency_s);
      traffic.edge_bytes_per_s =
          std::min(traffic.edge_bytes_per_s, cluster.RateOf(edge.loads));
    }
  }
  for (const auto& [link, flows] : flows_on) {
    traffic.loads.push_back({link, flows});
  }
  std::sort(traffic.loads.begin(), traffic.loads.end(),
            [](const LinkLoad& left, const LinkLoad& right) {
              return left.link < right.link;
            });
  return traffic;
}

}  // namespace

CollectivePlan PlanCollective(const Program& program, OpKind kind, double bytes,
                              const std::vector<Member>& members) {
  PW_CHECK(IsCollective(kind));
  CollectivePlan plan;
  const auto count = static_cast<int>(members.size());
  if (count < 2) return plan;
  const RingShape shape = ShapeOfRing(kind, count);
  const double doublings = std::ceil(std::log2(count));
  RingTraffic traffic = {.latency_s = program.network.hop_s};
  double ring_bytes_per_s = std::numeric_limits<double>::infinity();
  if (const Cluster* cluster = program.network.cluster.get()) {
    traffic = TrafficOf(program.network, members);
    ring_bytes_per_s = cluster->RateOf(traffic.loads);
  }
  plan.ring = true;
  plan.bytes_per_edge = shape.share * bytes / traffic.rings;
  plan.latency_s = shape.steps * traffic.latency_s;
  plan.seconds = plan.latency_s + plan.bytes_per_edge / ring_bytes_per_s;
  // Its steps share no links here, so it is for small messages only.
  const double step_s = bytes / traffic.edge_bytes_per_s;
  const bool may_double =
      count > 2 && step_s <= traffic.latency_s &&
      (kind == OpKind::kAllReduce || kind == OpKind::kBarrier);
  const double doubling_s = doublings * (traffic.latency_s + step_s);
  if (may_double && doubling_s < plan.seconds) {
    return {.seconds = doubling_s, .latency_s = doublings * traffic.latency_s};
  }
  plan.loads = std::move(traffic.loads);
  return plan;
}

}  // namespace pipewright
