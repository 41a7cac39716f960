#include "sim/config/pcie_switches.h"

#include <algorithm>

#include "sim/program/network_time.h"

namespace pipewright {

PcieSwitches::PcieSwitches(const Network& network, int replicas, int pp)
    : network_(network) {
  for (int replica = 0; replica < replicas; ++replica) {
    for (int rank = 0; rank < pp; ++rank) {
      for (const LinkLoad& load :
           HostFlows(network, replica, rank, true).loads) {
        flows_[load.link] += static_cast<int>(load.flows);
      }
      if (replica == 0) ranks_[Of(rank)].push_back(rank);
    }
  }
}

int PcieSwitches::Of(int rank) const {
  return HostFlows(network_, 0, rank, true).loads.front().link;
}

int PcieSwitches::DevicesOn(int rank) const {
  int most = 1;
  for (const LinkLoad& load : HostFlows(network_, 0, rank, true).loads) {
    most = std::max(most, flows_.at(load.link));
  }
  return most;
}

double PcieSwitches::SharersOf(int rank) const {
  const std::vector<LinkLoad> loads = HostFlows(network_, 0, rank, true).loads;
  const double alone = network_.cluster->RateOf(loads);
  double most = 1;
  for (const LinkLoad& load : loads) {
    // A wide link, such as that of a root, may have many and still wait.
    const double own =
        network_.cluster->links()[load.link].bytes_per_s / load.flows;
    most = std::max(most, flows_.at(load.link) / load.flows * (alone / own));
  }
  return most;
}

double PcieSwitches::SharersInTurn(int rank) const {
  const auto ranks = static_cast<double>(ranks_.at(Of(rank)).size());
  return std::max(1.0, SharersOf(rank) / ranks);
}

double ActivationCopySeconds(const PreparedRun& run, const Program& program,
                             int stage, PassKind kind, double times) {
  const Lane lane = {.bytes = run.lower.activation_bytes[stage] * times};
  const int rank = run.schedule.lowered->placement.RankOf(stage, 0);
  return CopySeconds(program, lane, kind, 0, rank);
}

}  // namespace pipewright
