#include "sim/program/network_time.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "sim/base/check.h"
#include "sim/profile/profile.h"
#include "sim/program/collective_phases.h"
#include "sim/program/measured_paths.h"
#include "sim/program/ring_traffic.h"
#include "sim/topology/mapping.h"

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

std::vector<LinkId> SwitchLinks(const Network& network, int replica, int rank,
                                bool to_host) {
  std::vector<LinkId> links;
  if (network.cluster == nullptr) return links;
  for (int index = 0; index < network.mapping->devices_per_rank(); ++index) {
    const int device = network.mapping->DeviceOf(replica, rank, index);
    const std::vector<LinkId> route =
        to_host ? network.cluster->DeviceToHost(device)
                : network.cluster->HostToDevice(device);
    if (!route.empty()) links.push_back(to_host ? route.front() : route.back());
  }
  std::sort(links.begin(), links.end());
  links.erase(std::unique(links.begin(), links.end()), links.end());
  return links;
}

double SecondsOf(const Cluster& cluster, const FlowBundle& flows,
                 double bytes) {
  return flows.latency_s + bytes / cluster.RateOf(flows.loads);
}

double BeyondLinks(const Network& network, PathEnds ends, double bytes) {
  return network.paths == nullptr ? 0 : network.paths->Beyond(ends, bytes);
}

namespace {

// Seconds of a transfer over `flows`, each of so many bytes, as measured where
// it was.
double PathSeconds(const Network& network, const FlowBundle& flows,
                   PathEnds ends, double bytes) {
  return std::max(0.0, SecondsOf(*network.cluster, flows, bytes) +
                           BeyondLinks(network, ends, bytes));
}

// Ends of messages between the devices of two ranks.
PathEnds EndsBetween(const Network& network, const Member& from,
                     const Member& to) {
  for (int index = 0; index < network.mapping->devices_per_rank(); ++index) {
    const auto node_of = [&](const Member& member) {
      const int device =
          network.mapping->DeviceOf(member.replica, member.rank, index);
      return network.cluster->devices()[device].node;
    };
    if (node_of(from) != node_of(to)) return PathEnds::kAcrossNodes;
  }
  return PathEnds::kInNode;
}

}  // namespace

PathEnds EndsOfHop(const Network& network, int replica, int from_rank,
                   int to_rank) {
  return EndsBetween(network, {replica, from_rank}, {replica, to_rank});
}

double HopSeconds(const Network& network, int replica, int from_rank,
                  int to_rank, double bytes) {
  return PathSeconds(network,
                     FlowsBetween(network, replica, from_rank, to_rank),
                     EndsOfHop(network, replica, from_rank, to_rank), bytes);
}

double TransferSeconds(const Program& program, const Channel& channel,
                       int replica) {
  if (channel.from_rank == channel.to_rank) return 0;
  const Network& network = program.network;
  if (network.cluster == nullptr) return network.hop_s;
  return HopSeconds(network, replica, channel.from_rank, channel.to_rank,
                    channel.bytes);
}

double CopySeconds(const Program& program, const Lane& lane, PassKind kind,
                   int replica, int rank) {
  if (program.network.cluster == nullptr || lane.bytes == 0) {
    return lane.seconds;
  }
  const bool to_host = kind == PassKind::kOffload;
  return PathSeconds(
      program.network, HostFlows(program.network, replica, rank, to_host),
      to_host ? PathEnds::kToHost : PathEnds::kToDevice, lane.bytes);
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

FlowBundle PeerFlows(const Program& program, const SideOp& op, int step,
                     int peer, int replica, int rank) {
  const Network& network = program.network;
  if (network.cluster == nullptr) return {};
  return network.cluster->BundleBetween(
      PeerPairs(program, op, step, peer, replica, rank));
}

std::vector<std::pair<int, int>> PeerPairs(const Program& program,
                                           const SideOp& op, int step, int peer,
                                           int replica, int rank) {
  const RankMapping& mapping = *program.network.mapping;
  const std::vector<PeerPlan::Peer>& peers = op.peers->steps[step].peers;
  std::vector<std::pair<int, int>> pairs;
  for (size_t number = 0; number < peers.size(); ++number) {
    if (peer >= 0 && static_cast<size_t>(peer) != number) continue;
    const int other =
        op.peers->ReplicaOf(peers[number], replica, program.replicas);
    if (other == replica) continue;
    for (int index = 0; index < mapping.devices_per_rank(); ++index) {
      const int theirs = mapping.DeviceOf(other, rank, index);
      const int own = mapping.DeviceOf(replica, rank, index);
      pairs.emplace_back(op.kind == OpKind::kPull ? theirs : own,
                         op.kind == OpKind::kPull ? own : theirs);
    }
  }
  return pairs;
}

PeerPace PaceOfPeers(const Program& program, const SideOp& op, int step,
                     int replica, int rank) {
  const Network& network = program.network;
  if (network.cluster == nullptr) return {.latency_s = network.hop_s};
  const FlowBundle flows = PeerFlows(program, op, step, -1, replica, rank);
  return {flows.latency_s, network.cluster->RateOf(flows.loads)};
}

double PeerStepSeconds(const Program& program, const SideOp& op, int step,
                       int replica, int rank) {
  return PaceOfPeers(program, op, step, replica, rank).SecondsOf(op.bytes);
}

std::vector<PeerPace> PacesOfPeers(const Program& program, const SideOp& op,
                                   int replica, int rank) {
  std::vector<PeerPace> paces;
  const auto steps = static_cast<int>(op.peers->steps.size());
  for (int step = 0; step < steps; ++step) {
    paces.push_back(PaceOfPeers(program, op, step, replica, rank));
  }
  return paces;
}

double OneSidedSeconds(const Program& program, const SideOp& op,
                       const std::vector<PeerPace>& paces) {
  double seconds = op.seconds + AddAllSeconds(op, program.replicas);
  for (const PeerPace& pace : paces) seconds += pace.SecondsOf(op.bytes);
  return seconds;
}

double OneSidedSeconds(const Program& program, const SideOp& op, int replica,
                       int rank) {
  if (op.peers != nullptr) {
    return OneSidedSeconds(program, op,
                           PacesOfPeers(program, op, replica, rank));
  }
  if (op.peer == rank && op.peer_offset % program.replicas == 0) return 0;
  if (program.network.cluster == nullptr) return program.network.hop_s;
  const int peer_replica = (replica + op.peer_offset) % program.replicas;
  return PathSeconds(
      program.network, OneSidedFlows(program, op, replica, rank),
      EndsBetween(program.network, {replica, rank}, {peer_replica, op.peer}),
      op.bytes);
}

FlowBundle HostOpFlows(const Program& program, const SideOp& op, int replica,
                       int rank) {
  const Network& network = program.network;
  if (IsHostCopy(op.kind)) {
    return HostFlows(network, replica, rank, op.kind == OpKind::kCopyOut);
  }
  if (op.host_bytes_each == 0) return {};
  FlowBundle bundle = FlowsOf(network, [&](int index) {
    return network.cluster->HostMemory(
        network.mapping->DeviceOf(replica, rank, index));
  });
  for (LinkLoad& load : bundle.loads) load.flows *= op.host_bytes_each;
  return bundle;
}

double HostOpSeconds(const Program& program, const SideOp& op, int replica,
                     int rank) {
  if (program.network.cluster == nullptr) return 0;
  const FlowBundle flows = HostOpFlows(program, op, replica, rank);
  if (IsHostCopy(op.kind)) {
    return PathSeconds(
        program.network, flows,
        op.kind == OpKind::kCopyOut ? PathEnds::kToHost : PathEnds::kToDevice,
        op.bytes);
  }
  return flows.latency_s +
         HostWork(op) / std::min(HostLimit(op),
                                 program.network.cluster->RateOf(flows.loads));
}

std::vector<Member> GroupMembers(const Program& program, const Group& group,
                                 int replica) {
  std::vector<Member> members;
  // Only its own instance is visited: there are as many as replicas if each
  // meets for itself.
  const int count = group.ReplicasOf(program.replicas);
  const int step = group.across ? group.part : 1;
  const int first = group.FirstOf(group.InstanceOf(replica));
  for (int index = 0; index < count; ++index) {
    const int other = first + index * step;
    for (const int rank : group.ranks) {
      const int contexts =
          group.contexts ? program.network.context_parallel : 1;
      for (int context = 0; context < contexts; ++context) {
        members.push_back({other, rank, contexts > 1 ? context : -1});
      }
    }
  }
  return members;
}

std::vector<Member> RanksOf(const std::vector<Member>& members) {
  std::vector<Member> ranks;
  for (const Member& member : members) {
    if (member.context <= 0) ranks.push_back({member.replica, member.rank});
  }
  return ranks;
}

std::vector<std::vector<int>> DevicesThatMeet(
    const Network& network, const std::vector<Member>& members) {
  int count = network.mapping->devices_per_rank();
  if (members[0].context >= 0) count /= network.context_parallel;
  std::vector<std::vector<int>> meeting(count);
  for (int index = 0; index < count; ++index) {
    for (const Member& member : members) {
      meeting[index].push_back(network.mapping->DeviceOf(
          member.replica, member.rank,
          std::max(0, member.context) * count + index));
    }
  }
  return meeting;
}

namespace {

int64_t NodesOf(const Network& network, const std::vector<Member>& members) {
  std::set<int> nodes;
  for (const Member& member : members) {
    const int device = network.mapping->DeviceOf(member.replica, member.rank);
    nodes.insert(network.cluster->devices()[device].node);
  }
  return static_cast<int64_t>(nodes.size());
}

}  // namespace

CollectiveKind CollectiveKindOf(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
      return CollectiveKind::kAllReduce;
    case OpKind::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    case OpKind::kAllGather:
      return CollectiveKind::kAllGather;
    default:
      PW_CHECK(kind == OpKind::kBarrier);
      return CollectiveKind::kBarrier;
  }
}

std::optional<CollectiveTime> MeasuredCollective(
    const Network& network, const SideOp& op,
    const std::vector<Member>& members) {
  if (network.measured == nullptr || op.stage < 0) return {};
  MeasuredMembers measured = {.profile = network.measured.get()};
  if (network.cluster != nullptr) {
    measured.transport = kNcclTransport;
    measured.nodes = NodesOf(network, members);
  }
  const std::optional<CollectiveTime> time =
      TimeOfCollective(CollectiveKindOf(op.kind), op.bytes,
                       static_cast<int>(members.size()), {}, &measured);
  if (!time || time->from != CollectiveTime::From::kMeasured) return {};
  return time;
}

namespace {

// Another algorithm than a ring, where that is wanted and possible.
void TakePhases(const Network& network, CollectiveKind kind, double bytes,
                const std::vector<Member>& members, CollectivePlan* plan) {
  const CollectiveAlgorithm wanted = network.collectives;
  if (network.cluster == nullptr || wanted == CollectiveAlgorithm::kRing ||
      kind == CollectiveKind::kBarrier || bytes == 0) {
    return;
  }
  const auto take = [&](CollectiveAlgorithm algorithm,
                        std::vector<CollectivePhase> phases) {
    if (phases.empty()) return;
    const double seconds = SecondsOf(*network.cluster, phases);
    if (wanted == CollectiveAlgorithm::kFastest && seconds >= plan->seconds) {
      return;
    }
    *plan = {.seconds = seconds,
             .algorithm = algorithm,
             .phases = std::move(phases)};
  };
  if (wanted != CollectiveAlgorithm::kHierarchical &&
      kind == CollectiveKind::kAllReduce) {
    take(CollectiveAlgorithm::kTree, TreePhases(network, bytes, members));
  }
  if (wanted != CollectiveAlgorithm::kTree) {
    take(CollectiveAlgorithm::kHierarchical,
         HierarchicalPhases(network, kind, bytes, members));
  }
}

// Rings over the links between the members, or what is faster.
CollectivePlan PlanRings(const Program& program, OpKind kind, double bytes,
                         const std::vector<Member>& members) {
  const auto count = static_cast<int>(members.size());
  if (count < 2) return {};
  std::shared_ptr<const RingTraffic> traffic;
  RingLinks links = RingTraffic().links;
  links.latency_s = program.network.hop_s;
  if (program.network.cluster != nullptr) {
    traffic = KnownRingTraffic(program.network.cluster,
                               DevicesThatMeet(program.network, members));
    links = traffic->links;
  }
  const CollectiveTime time =
      *TimeOfCollective(CollectiveKindOf(kind), bytes, count, links);
  const bool ring = time.from == CollectiveTime::From::kRing;
  CollectivePlan plan = {.ring = ring,
                         .seconds = time.seconds,
                         .latency_s = time.latency_s,
                         .bytes_per_edge = time.bytes_per_edge};
  if (ring && traffic != nullptr) plan.loads = traffic->loads;
  return plan;
}

}  // namespace

CollectivePlan PlanCollective(const Program& program, OpKind kind, double bytes,
                              const std::vector<Member>& members) {
  CollectivePlan plan = PlanRings(program, kind, bytes, members);
  if (members.size() < 2) return plan;
  TakePhases(program.network, CollectiveKindOf(kind), bytes, members, &plan);
  return plan;
}

CollectivePlan PlanCollective(const Program& program, const SideOp& op,
                              const std::vector<Member>& members) {
  const auto measured = MeasuredCollective(program.network, op, members);
  if (!measured) return PlanCollective(program, op.kind, op.bytes, members);
  // Its rings are on the links, for others to share; latency takes up what was
  // measured beyond, and less than they take puts fewer bytes on them.
  CollectivePlan plan = PlanRings(program, op.kind, op.bytes, members);
  plan.measured = true;
  plan.seconds = measured->seconds;
  if (plan.loads.empty()) return {.measured = true, .seconds = plan.seconds};
  const double rate = program.network.cluster->RateOf(plan.loads);
  plan.latency_s = std::max(0.0, plan.seconds - plan.bytes_per_edge / rate);
  plan.bytes_per_edge = (plan.seconds - plan.latency_s) * rate;
  return plan;
}

}  // namespace pipewright
