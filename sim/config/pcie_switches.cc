#include "sim/config/pcie_switches.h"

#include <algorithm>

#include "sim/program/network_time.h"

namespace pipewright {

PcieSwitches::PcieSwitches(const Network& network, int replicas, int pp)
    : network_(network) {
  for (const bool to_host : {true, false}) {
    auto& flows = to_host ? flows_.to_host : flows_.to_device;
    // [switch][link] what the widest copy over that switch sends there.
    std::map<LinkId, std::map<LinkId, double>> widest;
    for (int replica = 0; replica < replicas; ++replica) {
      for (int rank = 0; rank < pp; ++rank) {
        const std::vector<LinkId> switches =
            SwitchLinks(network, replica, rank, to_host);
        for (const LinkLoad& load :
             HostFlows(network, replica, rank, to_host).loads) {
          flows[load.link] += load.flows;
          if (switches.empty()) continue;
          double& most = widest[switches.front()][load.link];
          most = std::max<double>(most, load.flows);
        }
        if (!to_host) continue;
        for (const LinkId link : switches) {
          copies_[link].emplace(replica, rank);
        }
        if (replica == 0) ranks_[Of(rank)].push_back(rank);
      }
    }
    auto& in_turn = to_host ? flows_in_turn_.to_host : flows_in_turn_.to_device;
    for (const auto& [link, loads] : widest) {
      for (const auto& [crossed, most] : loads) in_turn[crossed] += most;
    }
  }
}

int PcieSwitches::Of(int rank) const {
  return SwitchLinks(network_, 0, rank, true).front();
}

int PcieSwitches::DevicesOn(int rank) const {
  int most = 1;
  for (const LinkLoad& load : HostFlows(network_, 0, rank, true).loads) {
    most = std::max(most, static_cast<int>(flows_.to_host.at(load.link)));
  }
  return most;
}

bool PcieSwitches::IsShared(int rank) const {
  const std::vector<LinkId> switches = SwitchLinks(network_, 0, rank, true);
  return std::any_of(switches.begin(), switches.end(), [this](LinkId link) {
    return copies_.at(link).size() > 1;
  });
}

double PcieSwitches::Flows::On(LinkId link, bool host,
                               CopiesBeside beside) const {
  const auto of = [link](const std::map<LinkId, double>& flows) {
    const auto found = flows.find(link);
    return found == flows.end() ? 0 : found->second;
  };
  if (beside == CopiesBeside::kBothWays) return of(to_host) + of(to_device);
  return of(host ? to_host : to_device);
}

double PcieSwitches::Slowdown(int rank, bool to_host, CopiesBeside beside,
                              const Flows& flows) const {
  double most = 1;
  const std::vector<LinkLoad> loads =
      HostFlows(network_, 0, rank, to_host).loads;
  const double alone = network_.cluster->RateOf(loads);
  for (const LinkLoad& load : loads) {
    // A wide link, such as that of a root, may have many and still wait.
    const double own =
        network_.cluster->links()[load.link].bytes_per_s / load.flows;
    most = std::max(most, flows.On(load.link, to_host, beside) / load.flows *
                              (alone / own));
  }
  return most;
}

double PcieSwitches::SharersOf(int rank, bool to_host,
                               CopiesBeside beside) const {
  return Slowdown(rank, to_host, beside, flows_);
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
  return ReplicasOn(rank) * Slowdown(rank, to_host, beside, flows_in_turn_);
}

double ActivationCopySeconds(const PreparedRun& run, const Program& program,
                             int stage, PassKind kind, double times) {
  const Lane lane = {.bytes = run.lower.activation_bytes[stage] * times};
  const int rank = run.schedule.lowered->placement.RankOf(stage, 0);
  return CopySeconds(program, lane, kind, 0, rank);
}

}  // namespace pipewright
