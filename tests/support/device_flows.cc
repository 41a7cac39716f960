#include "tests/support/device_flows.h"

#include <algorithm>
#include <limits>
#include <map>

#include "sim/topology/mapping.h"

namespace pipewright {
namespace {

struct Running {
  const DeviceFlow* flow;
  double left;
  double since_s = 0;
  double rate = 0;
};

// The slowest first: the flows of the link with the least to give get their
// share of it, and so on with what is left.
std::vector<double> Rates(const Cluster& cluster,
                          const std::vector<Running>& running) {
  std::vector<double> rates(running.size(), 0);
  std::map<LinkId, double> taken;
  for (size_t fixed = 0; fixed < running.size();) {
    std::map<LinkId, int> waiting;
    for (size_t index = 0; index < running.size(); ++index) {
      if (rates[index] > 0) continue;
      for (const LinkId link : running[index].flow->links) ++waiting[link];
    }
    LinkId narrowest = -1;
    double share = std::numeric_limits<double>::infinity();
    for (const auto& [link, flows] : waiting) {
      const double left = cluster.links()[link].bytes_per_s - taken[link];
      if (left / flows >= share) continue;
      share = left / flows;
      narrowest = link;
    }
    for (size_t index = 0; index < running.size(); ++index) {
      const std::vector<LinkId>& links = running[index].flow->links;
      if (rates[index] > 0 ||
          std::find(links.begin(), links.end(), narrowest) == links.end()) {
        continue;
      }
      rates[index] = share;
      ++fixed;
      for (const LinkId link : links) taken[link] += share;
    }
  }
  return rates;
}

// All devices of a rank at once, the longest latency first.
template <class RouteOfDevice>
double SecondsOfDevices(const Network& network, double bytes,
                        RouteOfDevice route) {
  double latency_s = 0;
  std::vector<DeviceFlow> flows;
  for (int index = 0; index < network.mapping->devices_per_rank(); ++index) {
    flows.push_back({route(index), bytes});
    double own_s = 0;
    for (const LinkId link : flows.back().links) {
      own_s += network.cluster->links()[link].latency_s;
    }
    latency_s = std::max(latency_s, own_s);
  }
  return latency_s + LastEnd(*network.cluster, flows);
}

// A step lasts until its fullest link has carried the bytes of all peers.
double NaivePeersSeconds(const Program& program, const SideOp& op, int replica,
                         int rank) {
  const Network& network = program.network;
  const auto steps = static_cast<double>(op.peers->steps.size());
  if (network.cluster == nullptr) return steps * network.hop_s;
  const Cluster& cluster = *network.cluster;
  const int size = op.peers->node_size;
  double seconds = 0;
  for (const PeerPlan::Step& step : op.peers->steps) {
    std::map<LinkId, double> flows;
    double latency_s = 0;
    for (const PeerPlan::Peer& peer : step.peers) {
      const int nodes = op.peers->nodes;  // nodes of a part
      const int first = replica / (size * nodes) * nodes;
      const int node = first + (replica / size - first + peer.node) % nodes;
      const int other = node * size + (replica + peer.place) % size;
      for (int index = 0; index < network.mapping->devices_per_rank();
           ++index) {
        const int own = network.mapping->DeviceOf(replica, rank, index);
        const int their = network.mapping->DeviceOf(other, rank, index);
        const std::vector<LinkId> route = op.kind == OpKind::kPull
                                              ? cluster.Route(their, own)
                                              : cluster.Route(own, their);
        double route_s = 0;
        for (const LinkId link : route) {
          flows[link] += 1;
          route_s += cluster.links()[link].latency_s;
        }
        latency_s = std::max(latency_s, route_s);
      }
    }
    double slowest_s = 0;
    for (const auto& [link, count] : flows) {
      slowest_s = std::max(
          slowest_s, op.bytes * count / cluster.links()[link].bytes_per_s);
    }
    seconds += latency_s + slowest_s;
  }
  return seconds;
}

}  // namespace

double LastEnd(const Cluster& cluster, const std::vector<DeviceFlow>& flows) {
  std::vector<Running> running;
  for (const DeviceFlow& flow : flows) {
    if (flow.bytes > 0 && !flow.links.empty()) {
      running.push_back({&flow, flow.bytes});
    }
  }
  double now_s = 0;
  while (!running.empty()) {
    const std::vector<double> rates = Rates(cluster, running);
    double next_s = std::numeric_limits<double>::infinity();
    for (size_t index = 0; index < running.size(); ++index) {
      Running& flow = running[index];
      if (flow.rate != rates[index]) {
        flow.left -= flow.rate * (now_s - flow.since_s);
        flow.since_s = now_s;
        flow.rate = rates[index];
      }
      next_s = std::min(next_s, flow.since_s + flow.left / flow.rate);
    }
    now_s = next_s;
    std::erase_if(running, [&](const Running& flow) {
      return flow.since_s + flow.left / flow.rate <= now_s;
    });
  }
  return now_s;
}

double NaiveTransferSeconds(const Program& program, const Channel& channel,
                            int replica) {
  const Network& network = program.network;
  if (channel.from_rank == channel.to_rank) return 0;
  if (network.cluster == nullptr) return network.hop_s;
  return SecondsOfDevices(network, channel.bytes, [&](int index) {
    return network.cluster->Route(
        network.mapping->DeviceOf(replica, channel.from_rank, index),
        network.mapping->DeviceOf(replica, channel.to_rank, index));
  });
}

double NaiveCopySeconds(const Program& program, const Lane& lane, PassKind kind,
                        int replica, int rank) {
  const Network& network = program.network;
  if (network.cluster == nullptr || lane.bytes == 0) return lane.seconds;
  return SecondsOfDevices(network, lane.bytes, [&](int index) {
    const int device = network.mapping->DeviceOf(replica, rank, index);
    return kind == PassKind::kOffload ? network.cluster->DeviceToHost(device)
                                      : network.cluster->HostToDevice(device);
  });
}

double NaiveOneSidedSeconds(const Program& program, const SideOp& op,
                            int replica, int rank) {
  const Network& network = program.network;
  if (op.peers != nullptr) {
    return op.seconds +
           (op.most_per_s > 0 ? op.peers->nodes * op.peers->node_size *
                                    op.parameters / op.most_per_s
                              : 0) +
           NaivePeersSeconds(program, op, replica, rank);
  }
  const int other = (replica + op.peer_offset) % program.replicas;
  if (op.peer == rank && other == replica) return 0;
  if (network.cluster == nullptr) return network.hop_s;
  return SecondsOfDevices(network, op.bytes, [&](int index) {
    const int own = network.mapping->DeviceOf(replica, rank, index);
    const int peer = network.mapping->DeviceOf(other, op.peer, index);
    return op.kind == OpKind::kPull ? network.cluster->Route(peer, own)
                                    : network.cluster->Route(own, peer);
  });
}

double NaiveHostSeconds(const Program& program, const SideOp& op, int replica,
                        int rank) {
  const Network& network = program.network;
  if (network.cluster == nullptr) return 0;
  const auto device = [&](int index) {
    return network.mapping->DeviceOf(replica, rank, index);
  };
  if (op.kind == OpKind::kCopyOut || op.kind == OpKind::kCopyIn) {
    return SecondsOfDevices(network, op.bytes, [&](int index) {
      return op.kind == OpKind::kCopyOut
                 ? network.cluster->DeviceToHost(device(index))
                 : network.cluster->HostToDevice(device(index));
    });
  }
  const double memory_s = SecondsOfDevices(
      network, op.parameters * op.host_bytes_each,
      [&](int index) { return network.cluster->HostMemory(device(index)); });
  const double cores_s = op.most_per_s > 0 ? op.parameters / op.most_per_s : 0;
  return std::max(memory_s, cores_s);
}

std::vector<DeviceFlow> RingEdges(const Network& network,
                                  const std::vector<Member>& members,
                                  double bytes, double share) {
  // Devices of a rank in the order of tensor, then context parallelism.
  int parts = network.mapping->devices_per_rank();
  if (members[0].context >= 0) parts /= network.context_parallel;
  // [part of the parameters][node]: the devices there.
  std::vector<std::map<int, std::vector<int>>> nodes;
  size_t rings = members.size();
  for (int part = 0; part < parts; ++part) {
    auto& own = nodes.emplace_back();
    for (const Member& member : members) {
      const int device = network.mapping->DeviceOf(
          member.replica, member.rank,
          part + (member.context < 0 ? 0 : member.context * parts));
      own[network.cluster->devices()[device].node].push_back(device);
    }
    for (auto& [node, devices] : own) {
      std::sort(devices.begin(), devices.end());
      rings = std::min(rings, own.size() == 1 ? 1 : devices.size());
    }
  }
  std::vector<DeviceFlow> edges;
  for (const auto& own : nodes) {
    for (size_t ring = 0; ring < rings; ++ring) {
      std::vector<int> order;
      for (const auto& [node, devices] : own) {
        for (size_t place = 0; place < devices.size(); ++place) {
          order.push_back(devices[(place + ring) % devices.size()]);
        }
      }
      for (size_t place = 0; place < order.size(); ++place) {
        edges.push_back({network.cluster->Route(
                             order[place], order[(place + 1) % order.size()]),
                         share * bytes / static_cast<double>(rings)});
      }
    }
  }
  return edges;
}

double NaiveCollectiveSeconds(const Program& program, OpKind kind, double bytes,
                              const std::vector<Member>& members) {
  const CollectivePlan plan = PlanCollective(program, kind, bytes, members);
  if (!plan.ring || program.network.cluster == nullptr) return plan.seconds;
  const auto n = static_cast<double>(members.size());
  double share = kind == OpKind::kBarrier ? 0 : (n - 1) / n;
  if (kind == OpKind::kAllReduce) share = 2 * share;
  return plan.latency_s +
         LastEnd(*program.network.cluster,
                 RingEdges(program.network, members, bytes, share));
}

}  // namespace pipewright
