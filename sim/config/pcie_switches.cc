#include "sim/config/pcie_switches.h"

#include <algorithm>

#include "sim/program/network_time.h"

namespace pipewright {

PcieSwitches::PcieSwitches(const Network& network, int replicas, int pp)
    : network_(network) {
  // [switch][link] what the widest copy over that switch sends there.
  std::map<LinkId, std::map<LinkId, double>> widest;
  for (int replica = 0; replica < replicas; ++replica) {
    for (int rank = 0; rank < pp; ++rank) {
      for (const bool to_host : {true, false}) {
        const std::vector<LinkId> switches =
            SwitchLinks(network, replica, rank, to_host);
        for (const LinkLoad& load :
             HostFlows(network, replica, rank, to_host).loads) {
          flows_[load.link] += load.flows;
          if (to_host) out_flows_[load.link] += static_cast<int>(load.flows);
          if (switches.empty()) continue;
          double& most = widest[switches.front()][load.link];
          most = std::max<double>(most, load.flows);
        }
        if (!to_host) continue;
        for (const LinkId link : switches) {
          copies_[link].emplace(replica, rank);
        }
      }
      if (replica == 0) ranks_[Of(rank)].push_back(rank);
    }
  }
  for (const auto& [link, loads] : widest) {
    for (const auto& [crossed, flows] : loads) flows_in_turn_[crossed] += flows;
  }
}

int PcieSwitches::Of(int rank) const {
  return SwitchLinks(network_, 0, rank, true).front();
}

int PcieSwitches::DevicesOn(int rank) const {
  int most = 1;
  for (const LinkLoad& load : HostFlows(network_, 0, rank, true).loads) {
    most = std::max(most, out_flows_.at(load.link));
  }
  return most;
}

bool PcieSwitches::IsShared(int rank) const {
  const std::vector<LinkId> switches = SwitchLinks(network_, 0, rank, true);
  return std::any_of(switches.begin(), switches.end(), [this](LinkId link) {
    return copies_.at(link).size() > 1;
  });
}

template <typename FlowsOnLink>
double PcieSwitches::Slowdown(int rank, const FlowsOnLink& flows_on) const {
  double most = 1;
  for (const bool to_host : {true, false}) {
    const std::vector<LinkLoad> loads =
        HostFlows(network_, 0, rank, to_host).loads;
    const double alone = network_.cluster->RateOf(loads);
    for (const LinkLoad& load : loads) {
      // A wide link, such as that of a root, may have many and still wait.
      const double own =
          network_.cluster->links()[load.link].bytes_per_s / load.flows;
      most = std::max(most, flows_on(load) / load.flows * (alone / own));
    }
  }
  return most;
}

double PcieSwitches::SharersOf(int rank) const {
  return Slowdown(
      rank, [this](const LinkLoad& load) { return flows_.at(load.link); });
}

double PcieSwitches::SharersInTurn(int rank) const {
  std::set<int> replicas;
  for (const LinkId link : SwitchLinks(network_, 0, rank, true)) {
    for (const auto& [replica, other] : copies_.at(link)) {
      replicas.insert(replica);
    }
  }
  return static_cast<double>(replicas.size()) *
         Slowdown(rank, [this](const LinkLoad& load) {
           return flows_in_turn_.at(load.link);
         });
}

double ActivationCopySeconds(const PreparedRun& run, const Program& program,
                             int stage, PassKind kind, double times) {
  const Lane lane = {.bytes = run.lower.activation_bytes[stage] * times};
  const int rank = run.schedule.lowered->placement.RankOf(stage, 0);
  return CopySeconds(program, lane, kind, 0, rank);
}

}  // namespace pipewright
