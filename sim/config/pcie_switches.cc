#include "sim/config/pcie_switches.h"

#include <algorithm>
#include <limits>

#include "sim/program/network_time.h"

namespace pipewright {

namespace {

// Rate of each flow of the first of several bundles that copy at once: all grow
// alike until a link is full, and go on without those that cross it.
double RateOfFirst(const Cluster& cluster,
                   const std::vector<std::vector<LinkLoad>>& bundles) {
  std::map<LinkId, double> room;  // bytes a second
  for (const std::vector<LinkLoad>& loads : bundles) {
    for (const LinkLoad& load : loads) {
      room[load.link] = cluster.links()[load.link].bytes_per_s;
    }
  }
  std::vector<bool> grows(bundles.size(), true);
  double rate = 0;
  while (grows[0] && !bundles[0].empty()) {
    std::map<LinkId, double> flows;
    for (size_t index = 0; index < bundles.size(); ++index) {
      if (!grows[index]) continue;
      for (const LinkLoad& load : bundles[index]) {
        flows[load.link] += load.flows;
      }
    }
    double step = std::numeric_limits<double>::infinity();
    for (const auto& [link, count] : flows) {
      step = std::min(step, room[link] / count);
    }
    rate += step;
    std::set<LinkId> full;
    for (const auto& [link, count] : flows) {
      // More than this of a link is more than rounding.
      constexpr double kNothing = 1e-12;
      room[link] -= step * count;
      if (room[link] <= kNothing * cluster.links()[link].bytes_per_s) {
        full.insert(link);
      }
    }
    for (size_t index = 0; index < bundles.size(); ++index) {
      grows[index] = grows[index] &&
                     std::none_of(bundles[index].begin(), bundles[index].end(),
                                  [&](const LinkLoad& load) {
                                    return full.count(load.link) > 0;
                                  });
    }
  }
  return rate;
}

}  // namespace

PcieSwitches::PcieSwitches(const Network& network, int replicas, int pp)
    : network_(network) {
  // [node][switch] of each direction.
  std::map<int, std::map<LinkId, Source>> widest[2];
  for (int replica = 0; replica < replicas; ++replica) {
    for (int rank = 0; rank < pp; ++rank) {
      const std::vector<LinkId> switches =
          SwitchLinks(network, replica, rank, true);
      if (switches.empty()) continue;
      for (const LinkId link : switches) {
        copies_[link].emplace(replica, rank);
      }
      if (replica == 0) ranks_[switches.front()].push_back(rank);
      const std::set<int> nodes = NodesOf(replica, rank);
      for (const bool to_host : {true, false}) {
        const std::vector<LinkLoad> loads =
            HostFlows(network, replica, rank, to_host).loads;
        double flows = 0;
        for (const LinkLoad& load : loads) {
          flows += load.flows;
          if (to_host) to_host_[load.link] += load.flows;
        }
        for (const int node : nodes) {
          sources_[node].push_back(
              {replica * pp + rank, switches.front(), to_host, loads});
          Source& most = widest[to_host ? 1 : 0][node][switches.front()];
          double had = 0;
          for (const LinkLoad& load : most.loads) had += load.flows;
          if (flows > had) {
            most = {switches.front(), switches.front(), to_host, loads};
          }
        }
      }
    }
  }
  for (const auto& of_direction : widest) {
    for (const auto& [node, of_switch] : of_direction) {
      for (const auto& [link, source] : of_switch) {
        in_turn_[node].push_back(source);
      }
    }
  }
}

std::set<int> PcieSwitches::NodesOf(int replica, int rank) const {
  std::set<int> nodes;
  for (int index = 0; index < network_.mapping->devices_per_rank(); ++index) {
    const int device = network_.mapping->DeviceOf(replica, rank, index);
    nodes.insert(network_.cluster->devices()[device].node);
  }
  return nodes;
}

int PcieSwitches::Of(int rank) const {
  return SwitchLinks(network_, 0, rank, true).front();
}

int PcieSwitches::DevicesOn(int rank) const {
  int most = 1;
  for (const LinkId link : SwitchLinks(network_, 0, rank, true)) {
    most = std::max(most, static_cast<int>(to_host_.at(link)));
  }
  return most;
}

bool PcieSwitches::IsShared(int rank) const {
  const std::vector<LinkId> switches = SwitchLinks(network_, 0, rank, true);
  return std::any_of(switches.begin(), switches.end(), [this](LinkId link) {
    return copies_.at(link).size() > 1;
  });
}

double PcieSwitches::Slowdown(int rank, bool to_host, CopiesBeside beside,
                              int owner, const Sources& sources) const {
  const FlowBundle own = HostFlows(network_, 0, rank, to_host);
  std::vector<std::vector<LinkLoad>> bundles = {own.loads};
  std::set<std::pair<int, bool>> seen;  // some are on several nodes
  for (const int node : NodesOf(0, rank)) {
    for (const Source& source : sources.at(node)) {
      const bool left_out =
          source.to_host == to_host
              ? source.owner == owner
              : beside == CopiesBeside::kSameWay && source.on == Of(rank);
      if (left_out || !seen.emplace(source.owner, source.to_host).second) {
        continue;
      }
      bundles.push_back(source.loads);
    }
  }
  return std::max(1.0, network_.cluster->RateOf(own.loads) /
                           RateOfFirst(*network_.cluster, bundles));
}

double PcieSwitches::SharersOf(int rank, bool to_host,
                               CopiesBeside beside) const {
  return Slowdown(rank, to_host, beside, rank, sources_);
}

int PcieSwitches::ReplicasOn(int rank) const {
  std::set<int> replicas;
  for (const LinkId link : SwitchLinks(network_, 0, rank, true)) {
    for (const auto& [replica, other] : copies_.at(link)) {
      replicas.insert(replica);
    }
  }
  return static_cast<int>(replicas.size());
}

double PcieSwitches::SharersInTurn(int rank, bool to_host,
                                   CopiesBeside beside) const {
  return ReplicasOn(rank) * Slowdown(rank, to_host, beside, Of(rank), in_turn_);
}

bool CopiesFillMemory(const Network& network, int replicas, int pp) {
  if (network.cluster == nullptr) return false;
  const Cluster& cluster = *network.cluster;
  // [memory][switch] the most that it copies.
  std::map<LinkId, std::map<LinkId, double>> wanted;
  for (int replica = 0; replica < replicas; ++replica) {
    for (int rank = 0; rank < pp; ++rank) {
      for (int index = 0; index < network.mapping->devices_per_rank();
           ++index) {
        const int device = network.mapping->DeviceOf(replica, rank, index);
        const std::vector<LinkId> memory = cluster.HostMemory(device);
        const std::vector<LinkId> out = cluster.DeviceToHost(device);
        if (memory.empty() || out.size() < 2) continue;
        const std::vector<LinkId> in = cluster.HostToDevice(device);
        double most = cluster.links()[out.front()].bytes_per_s +
                      cluster.links()[in.back()].bytes_per_s;
        // What both ways share beside the memory is that of their switch.
        if (out[1] == in[in.size() - 2] && out[1] != memory.front()) {
          most = std::min(most, cluster.links()[out[1]].bytes_per_s);
        }
        wanted[memory.front()][out.front()] = most;
      }
    }
  }
  for (const auto& [memory, switches] : wanted) {
    double sum = 0;
    for (const auto& [link, most] : switches) sum += most;
    if (sum > cluster.links()[memory].bytes_per_s) return true;
  }
  return false;
}

double ActivationCopySeconds(const PreparedRun& run, const Program& program,
                             int stage, PassKind kind, double times) {
  const double bytes = run.lower.activation_bytes[stage];
  const Lane lane = {.bytes = bytes * times};
  const int rank = run.schedule.lowered->placement.RankOf(stage, 0);
  // Sharing makes the links slower, not the copy larger.
  const auto beyond = [&](double of) {
    return BeyondLinks(
        program.network,
        kind == PassKind::kOffload ? PathEnds::kToHost : PathEnds::kToDevice,
        of);
  };
  return CopySeconds(program, lane, kind, 0, rank) - beyond(lane.bytes) +
         beyond(bytes);
}

}  // namespace pipewright
