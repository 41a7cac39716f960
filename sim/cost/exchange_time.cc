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
  // What a message without bytes takes of all members.
  const double start_s =
      TimeOfCollective(CollectiveKind::kAllGather, 1, comm.members, group)
          ->seconds;
  if (comm.kind == CommKind::kRing) {
    const double bus = group.channels * group.channel_GBps * 1e9;
    return (group.ranks - 1) * (comm.bytes / bus + start_s / group.ranks);
  }
  const ExchangeBytes sent = BytesOfExchange(comm, group.ranks, group.nodes);
  if (is_measured) {
    if (const auto time =
            options.silicon->AllToAll(comm.members, sent.buffer)) {
      return time->seconds;
    }
  }
  const double nvlink =
      options.network.nvlink_bytes_per_s * options.device.collective_sustained;
  // Between nodes each device has its own part of the cards.
  const double outside_s =
      group.nodes == 1 ? 0 : sent.nic / options.network.nic_bytes_per_s;
  const double inside_s = sent.nvlink > 0 ? sent.nvlink / nvlink : 0;
  return std::max(inside_s, outside_s) + start_s;
}

}  // namespace pipewright
