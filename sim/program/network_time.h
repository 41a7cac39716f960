// The time of a transfer that has the network to itself: the time of the fast
// engine, and a lower bound for every other. Latencies add up along a route,
// the narrowest link gives the bandwidth. With a pure delay per hop every
// transfer takes one hop, whatever its bytes.
//
// All devices of a rank take part, each with the bytes given: transfers go from
// the n-th device of one rank to the n-th of the other. Nothing else uses the
// network, but they share its links with each other.
#pragma once

#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/cost/collective_time.h"
#include "sim/program/measured_paths.h"
#include "sim/program/program.h"

namespace pipewright {

// A transfer between two ranks of one replica. Empty with a pure delay.
FlowBundle FlowsBetween(const Network& network, int replica, int from_rank,
                        int to_rank);
// A pull or push of `rank`. Empty with a pure delay.
FlowBundle OneSidedFlows(const Program& program, const SideOp& op, int replica,
                         int rank);
// A step of one with several peers: all its flows at once, or with `peer` >= 0
// only those with this one.
FlowBundle PeerFlows(const Program& program, const SideOp& op, int step,
                     int peer, int replica, int rank);
// Devices from which and to which each of the same flows goes; with a network.
std::vector<std::pair<int, int>> PeerPairs(const Program& program,
                                           const SideOp& op, int step, int peer,
                                           int replica, int rank);
// How all of it at once goes, alone on the network: the same for operations of
// a device that have the same peers, whatever their bytes.
struct PeerPace {
  double latency_s = 0;
  double bytes_per_s = std::numeric_limits<double>::infinity();
  double SecondsOf(double bytes) const {
    return latency_s + bytes / bytes_per_s;
  }
};
PeerPace PaceOfPeers(const Program& program, const SideOp& op, int step,
                     int replica, int rank);
double PeerStepSeconds(const Program& program, const SideOp& op, int step,
                       int replica, int rank);
// O and pushes to the host (to_host) or L.
FlowBundle HostFlows(const Network& network, int replica, int rank,
                     bool to_host);
// Links of PCIe switches on these routes, in the order of their ids.
std::vector<LinkId> SwitchLinks(const Network& network, int replica, int rank,
                                bool to_host);

// A host copy of `rank`, or what work of its host takes of the host's memory:
// then a flow is so many parameters. Empty where no link is known.
FlowBundle HostOpFlows(const Program& program, const SideOp& op, int replica,
                       int rank);
// How much there is of it: bytes of a host copy, else parameters.
inline double HostWork(const SideOp& op) {
  return IsHostCopy(op.kind) ? op.bytes : op.parameters;
}
// The same a second at most, whatever the links; infinite without a limit.
inline double HostLimit(const SideOp& op) {
  return op.most_per_s > 0 ? op.most_per_s
                           : std::numeric_limits<double>::infinity();
}

// Latency plus the bytes of each flow at its rate, on an empty network.
double SecondsOf(const Cluster& cluster, const FlowBundle& flows, double bytes);

// What a transfer with such ends takes beyond its links, as measured
// (Network::paths); 0 where it was not. Seconds, may be below 0.
double BeyondLinks(const Network& network, PathEnds ends, double bytes);
// A hop of so many bytes a device, and where it leads. Need a cluster.
PathEnds EndsOfHop(const Network& network, int replica, int from_rank,
                   int to_rank);
double HopSeconds(const Network& network, int replica, int from_rank,
                  int to_rank, double bytes);

// From the end of the producing operation to the arrival. 0 for events.
double TransferSeconds(const Program& program, const Channel& channel,
                       int replica);
// An O or L of `lane`.
double CopySeconds(const Program& program, const Lane& lane, PassKind kind,
                   int replica, int rank);
// A host copy, or work of the host, that nothing runs beside.
double HostOpSeconds(const Program& program, const SideOp& op, int replica,
                     int rank);
// A pull or push; with several peers also by the paces of its steps.
std::vector<PeerPace> PacesOfPeers(const Program& program, const SideOp& op,
                                   int replica, int rank);
double OneSidedSeconds(const Program& program, const SideOp& op,
                       const std::vector<PeerPace>& paces);
double OneSidedSeconds(const Program& program, const SideOp& op, int replica,
                       int rank);

struct Member {
  int replica = 0;
  int rank = 0;
  // Part of context parallelism whose devices are meant; below 0: all.
  int context = -1;
};
// Members of the instance of `group` that `replica` takes part in.
std::vector<Member> GroupMembers(const Program& program, const Group& group,
                                 int replica);
// Their ranks, each once.
std::vector<Member> RanksOf(const std::vector<Member>& members);
// [index] the index-th devices of all members, which meet. Only on a cluster.
std::vector<std::vector<int>> DevicesThatMeet(
    const Network& network, const std::vector<Member>& members);

// How a collective runs: as TimeOfCollective (sim/cost/collective_time.h) says,
// on rings over the links between its members. A group with k devices in every
// one of several nodes runs k rings with 1/k of the buffer each. All lists of
// DevicesThatMeet have rings of their own, and all run at once.
//
// A ring turns at the pace of its slowest edge, so all edges are one bundle.
//
// Or in phases, where Network::collectives says so (collective_phases.h).
struct CollectivePhase {
  double latency_s = 0;  // nothing is on the links yet
  double bytes = 0;      // in each flow
  std::vector<LinkLoad> loads;
};
struct CollectivePlan {
  bool ring = false;
  bool measured = false;        // `seconds` are
  double seconds = 0;           // alone on the network
  double latency_s = 0;         // part of `seconds` without bytes
  double bytes_per_edge = 0;    // for a ring
  std::vector<LinkLoad> loads;  // on all edges of a ring on a cluster
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
  std::vector<CollectivePhase> phases;  // one after the other; none of a ring
};

// By the links.
CollectivePlan PlanCollective(const Program& program, OpKind kind, double bytes,
                              const std::vector<Member>& members);

// Kind of an all-reduce, reduce-scatter, all-gather or barrier.
CollectiveKind CollectiveKindOf(OpKind kind);

// What was measured (Network::measured) of an operation that moves gradients or
// parameters: of as many members and, on a cluster, of GPUs on as many nodes.
// Nothing of other operations and other members.
std::optional<CollectiveTime> MeasuredCollective(
    const Network& network, const SideOp& op,
    const std::vector<Member>& members);

// As measured, else by the links.
CollectivePlan PlanCollective(const Program& program, const SideOp& op,
                              const std::vector<Member>& members);

// Collectives of one group with the same key have the same plan.
using CollectiveKey = std::tuple<OpKind, double, bool>;
inline CollectiveKey CollectiveKeyOf(const SideOp& op) {
  return {op.kind, op.bytes, op.stage >= 0};
}

// What an owner of ODC takes to add what a client pushes to it.

// Time that owners add for in a push with several peers. SideOp::parameters are
// then the bytes that each owner adds, for one client after the other, and
// most_per_s is how many of them a second (0: at once).
inline double AddSeconds(const SideOp& op) {
  return op.most_per_s > 0 ? op.parameters / op.most_per_s : 0;
}

// Clients of an owner: the replicas that its part of the weights is shared by.
inline int ClientsOf(const SideOp& op, int replicas) {
  const PeerPlan& plan = *op.peers;
  return plan.nodes > 0 ? plan.nodes * plan.node_size : replicas;
}

// Time if nobody is waited for: as if all clients came at once and this one
// were the last. Of clients in lock-step the last decides when a step ends.
inline double AddAllSeconds(const SideOp& op, int replicas) {
  return ClientsOf(op, replicas) * AddSeconds(op);
}

}  // namespace pipewright
