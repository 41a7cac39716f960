#include "sim/program/network_time.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "sim/base/check.h"

namespace pipewright {

std::vector<LinkId> LinksBetween(const Network& network, int replica,
                                 int from_rank, int to_rank) {
  if (network.cluster == nullptr) return {};
  return network.cluster->Route(network.mapping->DeviceOf(replica, from_rank),
                                network.mapping->DeviceOf(replica, to_rank));
}

std::vector<LinkId> HostLinks(const Network& network, int replica, int rank,
                              bool to_host) {
  if (network.cluster == nullptr) return {};
  const int device = network.mapping->DeviceOf(replica, rank);
  return to_host ? network.cluster->DeviceToHost(device)
                 : network.cluster->HostToDevice(device);
}

double SecondsOnLinks(const Cluster& cluster, const std::vector<LinkId>& links,
                      double bytes) {
  return cluster.LatencyOf(links) + bytes / cluster.BandwidthOf(links);
}

double TransferSeconds(const Program& program, const Channel& channel,
                       int replica) {
  if (channel.from_rank == channel.to_rank) return 0;
  const Network& network = program.network;
  if (network.cluster == nullptr) return network.hop_s;
  return SecondsOnLinks(
      *network.cluster,
      LinksBetween(network, replica, channel.from_rank, channel.to_rank),
      channel.bytes);
}

double CopySeconds(const Program& program, const Lane& lane, PassKind kind,
                   int replica, int rank) {
  if (program.network.cluster == nullptr || lane.bytes == 0) {
    return lane.seconds;
  }
  return SecondsOnLinks(
      *program.network.cluster,
      HostLinks(program.network, replica, rank, kind == PassKind::kOffload),
      lane.bytes);
}

std::vector<LinkId> OneSidedLinks(const Program& program, const SideOp& op,
                                  int replica, int rank) {
  const Network& network = program.network;
  if (network.cluster == nullptr) return {};
  const int peer = network.mapping->DeviceOf(
      (replica + op.peer_offset) % program.replicas, op.peer);
  const int own = network.mapping->DeviceOf(replica, rank);
  return op.kind == OpKind::kPull ? network.cluster->Route(peer, own)
                                  : network.cluster->Route(own, peer);
}

double OneSidedSeconds(const Program& program, const SideOp& op, int replica,
                       int rank) {
  if (op.peer == rank && op.peer_offset % program.replicas == 0) return 0;
  if (program.network.cluster == nullptr) return program.network.hop_s;
  return SecondsOnLinks(*program.network.cluster,
                        OneSidedLinks(program, op, replica, rank), op.bytes);
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

}  // namespace

CollectivePlan PlanCollective(const Program& program, OpKind kind, double bytes,
                              const std::vector<Member>& members) {
  PW_CHECK(IsCollective(kind));
  CollectivePlan plan;
  const auto count = static_cast<int>(members.size());
  if (count < 2) return plan;
  const RingShape shape = ShapeOfRing(kind, count);
  const double doublings = std::ceil(std::log2(count));
  double latency_s = program.network.hop_s;
  double narrowest = std::numeric_limits<double>::infinity();
  double fair_share = narrowest;
  int rings = 1;
  if (const Cluster* cluster = program.network.cluster.get()) {
    std::vector<int> devices;
    for (const Member& member : members) {
      devices.push_back(
          program.network.mapping->DeviceOf(member.replica, member.rank));
    }
    absl::flat_hash_map<LinkId, int> edges_on;
    latency_s = 0;
    const std::vector<std::vector<int>> orders = Rings(*cluster, devices);
    rings = static_cast<int>(orders.size());
    for (const std::vector<int>& order : orders) {
      for (int index = 0; index < count; ++index) {
        const int from = order[index];
        const int to = order[(index + 1) % count];
        plan.edges.emplace_back(from, to);
        const std::vector<LinkId> links = cluster->Route(from, to);
        latency_s = std::max(latency_s, cluster->LatencyOf(links));
        narrowest = std::min(narrowest, cluster->BandwidthOf(links));
        for (const LinkId link : links) ++edges_on[link];
      }
    }
    for (const auto& [link, edges] : edges_on) {
      fair_share =
          std::min(fair_share, cluster->links()[link].bytes_per_s / edges);
    }
  }
  plan.ring = true;
  plan.bytes_per_edge = shape.share * bytes / rings;
  plan.latency_s = shape.steps * latency_s;
  plan.seconds = plan.latency_s + plan.bytes_per_edge / fair_share;
  // Its bytes share no links here, so it is for small messages only.
  const bool may_double =
      count > 2 && bytes / narrowest <= latency_s &&
      (kind == OpKind::kAllReduce || kind == OpKind::kBarrier);
  const double doubling_s = doublings * (latency_s + bytes / narrowest);
  if (may_double && doubling_s < plan.seconds) {
    plan = {.seconds = doubling_s, .latency_s = doublings * latency_s};
  }
  if (program.network.cluster == nullptr) plan.edges.clear();
  return plan;
}

}  // namespace pipewright
