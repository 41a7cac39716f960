#include "sim/cost/exchange_time.h"

#include <algorithm>
#include <cmath>

#include "sim/cost/silicon.h"

namespace pipewright {
namespace {

// How many of `places` places `copies` copies meet, each put evenly.
double Distinct(double places, double copies) {
  return places * (1 - std::pow(1 - 1 / places, copies));
}

}  // namespace

ExchangeBytes BytesOfExchange(const OpComm& comm, int ranks, int nodes) {
  ExchangeBytes out;
  const double of_node = static_cast<double>(ranks) / nodes;
  if (comm.copies <= 0) {
    out.buffer = comm.bytes;
    out.nvlink = comm.bytes * (of_node - 1) / ranks;
    out.nic = comm.bytes * (ranks - of_node) / ranks;
    return out;
  }
  const double token = comm.bytes / comm.copies;
  double on_nodes = Distinct(nodes, comm.copies);
  if (comm.most_nodes > 0) {
    on_nodes = std::min<double>(on_nodes, comm.most_nodes);
  }
  const double devices = Distinct(ranks, comm.copies);
  out.buffer = token * devices;
  // Its own node is as likely as any other; so is each device of a node.
  out.nic = token * on_nodes * (nodes - 1) / nodes;
  out.nvlink = token * devices * (of_node - 1) / of_node;
  return out;
}

double ExchangeSeconds(const AnalyticOptions& options, const OpComm& comm,
                       const NcclGroup& group, bool is_measured) {
  // What a message without bytes takes of all members, but for the way between
  // nodes: an all-to-all goes it once, not round.
  NcclGroup near = group;
  near.ring_latency_s = 0;
  near.latency_s = 0;
  const double start_s =
      TimeOfCollective(CollectiveKind::kAllGather, 1, comm.members, near)
          ->seconds;
  if (comm.kind == CommKind::kRing) {
    const double bus = group.channels * group.channel_GBps * 1e9;
    return (group.ranks - 1) * (comm.bytes / bus + start_s / group.ranks) +
           group.ring_latency_s;
  }
  if (is_measured) {
    const double buffer =
        BytesOfExchange(comm, group.ranks, group.nodes).buffer;
    if (const auto time = options.silicon->AllToAll(comm.members, buffer)) {
      return time->seconds;
    }
  }
  const LinkSeconds moving =
      AllToAllSeconds(options, comm, group.ranks, group.nodes);
  return *std::max_element(moving.begin(), moving.end()) + start_s +
         group.latency_s;
}

LinkSeconds AllToAllSeconds(const AnalyticOptions& options, const OpComm& comm,
                            int ranks, int nodes) {
  const AnalyticNetwork& network = options.network;
  const ExchangeBytes sent = BytesOfExchange(comm, ranks, nodes);
  const double nvlink =
      network.nvlink_bytes_per_s * options.device.collective_sustained;
  LinkSeconds seconds = {};
  const auto on = [&](LinkKind kind) -> double& {
    return seconds[static_cast<int>(kind)];
  };
  if (sent.nvlink > 0) on(LinkKind::kNvlink) = sent.nvlink / nvlink;
  if (nodes == 1) return seconds;
  // Between nodes each device has its own part of the cards.
  on(LinkKind::kCard) = sent.nic / network.nic_bytes_per_s;
  const double of_node = static_cast<double>(ranks) / nodes;
  on(LinkKind::kFabric) = sent.nic / (ranks - of_node) *
                          network.between[static_cast<int>(comm.group)].pair_s;
  return seconds;
}

LinkSeconds ShareOfLinks(const AnalyticOptions& options,
                         const TrainingSpec& training, const OpComm& comm) {
  const AnalyticNetwork& network = options.network;
  const NcclGroup group = NcclGroupOf(options, training, comm);
  LinkSeconds seconds = {};
  if (comm.kind == CommKind::kAllToAll) {
    seconds = AllToAllSeconds(options, comm, group.ranks, group.nodes);
  } else {
    const auto set = [&](LinkKind kind, double byte_s) {
      seconds[static_cast<int>(kind)] = byte_s;
    };
    if (group.nodes < group.ranks) {
      set(LinkKind::kNvlink, 1 / (network.nvlink_bytes_per_s *
                                  options.device.collective_sustained));
    }
    if (group.nodes > 1) {
      set(LinkKind::kCard,
          group.nodes / (network.nic_bytes_per_s * group.ranks));
      set(LinkKind::kFabric,
          network.between[static_cast<int>(comm.group)].ring_s);
    }
  }
  const double most = *std::max_element(seconds.begin(), seconds.end());
  for (double& each : seconds) each = most > 0 ? each / most : 0;
  return seconds;
}

}  // namespace pipewright
