#include "sim/cost/exchange.h"

#include <algorithm>
#include <cmath>

#include "sim/cost/silicon.h"

namespace pipewright {
namespace {

// What exchanges with experts reach of a link's rate, in messages of tens of
// megabytes a device.
// - Sent once: HybridEP in bf16 with 8 multiprocessors and more, kernels alone
//   (deepseek-ai/DeepEP 41cad944, its page of Hybrid-EP). On GB200 543 to 666
//   of 900 GB/s, geometric mean. Between nodes of H100 the time of 16, 32 and
//   64 devices is that of the cards at 46.5 of 50 GB/s, and 0.4 of what NVLink
//   takes at its rate.
// - Copies for each expert (NCCL 2.28 and 2.29 over EFA; alltoall_perf by
//   awslabs/awsome-distributed-ai 95b939cd, ep-backend-comparison): at its peak
//   0.79 to 0.92 of the cards on 32 to 128 B300 and H100. With 64 MiB a device
//   0.11 to 0.34 ms longer than that, geometric mean. Taken for InfiniBand too.
// Libraries of DeepEP over EFA (UCCL, a proxy on the host) are not in it.
// [kernel file]
constexpr double kOnceOfLinks = 0.68;
constexpr double kOnceOfCards = 0.93;
constexpr double kOnceNotHidden = 0.4;
constexpr double kCopiesOfCards = 0.87;
constexpr double kCopiesStart = 0.2e-3;

// What these rates are of; parts of a context go at the links' own.
bool IsOfExperts(const OpComm& comm) {
  return comm.group == CommGroup::kExpert;
}

// How many of `places` places `copies` copies meet, each put evenly.
double Distinct(double places, double copies) {
  return places * (1 - std::pow(1 - 1 / places, copies));
}

}  // namespace

double LeastShareOfLinks(const DeviceSpec& device) {
  return std::min(device.collective_sustained, kOnceOfLinks);
}

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
  if (is_measured && comm.copies <= 0) {
    const double buffer =
        BytesOfExchange(comm, group.ranks, group.nodes).buffer;
    if (const auto time = options.silicon->AllToAll(comm.members, buffer)) {
      return time->seconds;
    }
  }
  const LinkSeconds moving =
      AllToAllSeconds(options, comm, group.ranks, group.nodes);
  const double longest_s = *std::max_element(moving.begin(), moving.end());
  const double links_s = moving[static_cast<int>(LinkKind::kNvlink)];
  if (group.nodes == 1) return longest_s + start_s;
  if (!IsOfExperts(comm)) return longest_s + start_s + group.latency_s;
  if (comm.copies <= 0) {
    return longest_s + std::max(start_s, kCopiesStart) + group.latency_s;
  }
  const double between_s =
      std::max(moving[static_cast<int>(LinkKind::kCard)],
               moving[static_cast<int>(LinkKind::kFabric)]);
  return longest_s + kOnceNotHidden * std::min(links_s, between_s) + start_s +
         group.latency_s;
}

LinkSeconds AllToAllSeconds(const AnalyticOptions& options, const OpComm& comm,
                            int ranks, int nodes) {
  const AnalyticNetwork& network = options.network;
  const ExchangeBytes sent = BytesOfExchange(comm, ranks, nodes);
  const bool once = comm.copies > 0;
  const double share =
      once ? kOnceOfLinks : options.device.collective_sustained;
  const double nvlink = network.nvlink_bytes_per_s * share;
  LinkSeconds seconds = {};
  const auto on = [&](LinkKind kind) -> double& {
    return seconds[static_cast<int>(kind)];
  };
  const double pair_s = network.between[static_cast<int>(comm.group)].pair_s;
  const double of_node = static_cast<double>(ranks) / nodes;
  const bool knows_pcie = !network.has_nvlink && pair_s > 0;
  if (sent.nvlink > 0 && !knows_pcie) {
    on(LinkKind::kNvlink) = sent.nvlink / nvlink;
  } else if (sent.nvlink > 0) {
    on(LinkKind::kFabric) = sent.nvlink / (of_node - 1) * pair_s / share;
  }
  if (nodes == 1) return seconds;
  // Between nodes each device has its own part of the cards.
  const double of_cards = !IsOfExperts(comm) ? 1
                          : once             ? kOnceOfCards
                                             : kCopiesOfCards;
  on(LinkKind::kCard) = sent.nic / (network.nic_bytes_per_s * of_cards);
  on(LinkKind::kFabric) =
      std::max(on(LinkKind::kFabric), sent.nic / (ranks - of_node) * pair_s);
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
    const BetweenNodes& between = network.between[static_cast<int>(comm.group)];
    if (!network.has_nvlink) set(LinkKind::kFabric, between.ring_s);
    if (group.nodes < group.ranks &&
        (network.has_nvlink || between.ring_s == 0)) {
      set(LinkKind::kNvlink, 1 / (network.nvlink_bytes_per_s *
                                  options.device.collective_sustained));
    }
    if (group.nodes > 1) {
      set(LinkKind::kCard,
          group.nodes / (network.nic_bytes_per_s * group.ranks));
      set(LinkKind::kFabric, between.ring_s);
    }
  }
  const double most = *std::max_element(seconds.begin(), seconds.end());
  for (double& each : seconds) each = most > 0 ? each / most : 0;
  return seconds;
}

namespace {

// Exchanges beside the passes of another microbatch are no part of these, and
// where groups of experts cut those of tensor parallelism nobody knows here
// which devices they are.
bool IsTraffic(const TrainingSpec& training, const OpComm& comm) {
  return comm.members > 1 && comm.bytes > 0 && !comm.beside_passes &&
         (comm.group != CommGroup::kExpert || training.etp() == training.tp);
}

// Fills in an all-to-all over `nodes` nodes. What is sent once to a node goes
// on inside of it, so members of the own node get more than others.
void ToEach(const OpComm& comm, int nodes, PassExchange* exchange) {
  const double members = comm.members;
  exchange->bytes = BytesOfExchange(comm, comm.members, 1).buffer / members;
  if (comm.copies <= 0 || nodes == 1) return;
  const ExchangeBytes sent = BytesOfExchange(comm, comm.members, nodes);
  const double of_node = members / nodes;
  exchange->bytes = sent.nic / (members - of_node);
  if (of_node > 1) {
    exchange->inside = sent.nvlink / (of_node - 1) / exchange->bytes;
  }
}

}  // namespace

double StartSeconds(const AnalyticOptions& options,
                    const TrainingSpec& training, const OpComm& comm) {
  OpComm least = comm;
  least.bytes = std::min(comm.bytes, 1.0);
  return std::min(CommSeconds(options, training, least),
                  CommSeconds(options, training, comm));
}

void AddExchanges(const std::vector<PassExchange>& more, double times,
                  std::vector<PassExchange>* sum) {
  for (const PassExchange& one : more) {
    const auto same =
        std::find_if(sum->begin(), sum->end(), [&](const PassExchange& other) {
          return other.group == one.group && other.members == one.members &&
                 other.to_all == one.to_all && other.is_beside == one.is_beside;
        });
    const auto at = same - sum->begin();
    if (same == sum->end()) {
      sum->push_back({.group = one.group,
                      .members = one.members,
                      .to_all = one.to_all,
                      .is_beside = one.is_beside,
                      .inside = one.inside});
    }
    PassExchange& into = (*sum)[at];
    into.seconds += times * one.seconds;
    into.latency_s += times * one.latency_s;
    into.bytes += times * one.bytes;
    into.compute_s += times * one.compute_s;
    into.rounds += times * one.rounds;
    for (size_t kind = 0; kind < into.on_links_s.size(); ++kind) {
      into.on_links_s[kind] += times * one.on_links_s[kind];
    }
  }
  std::erase_if(*sum,
                [](const PassExchange& each) { return each.seconds <= 0; });
}

PassExchange ExchangeOf(const AnalyticOptions& options,
                        const TrainingSpec& training, const OpComm& comm) {
  PassExchange exchange = {.group = comm.group,
                           .members = comm.members,
                           .to_all = comm.kind == CommKind::kAllToAll,
                           .is_beside = comm.overlaps,
                           .seconds = CommSeconds(options, training, comm),
                           .latency_s = StartSeconds(options, training, comm)};
  exchange.rounds = comm.kind == CommKind::kAllReduce ? 2 : 1;
  exchange.on_links_s = ShareOfLinks(options, training, comm);
  for (double& seconds : exchange.on_links_s) {
    seconds *= exchange.seconds - exchange.latency_s;
  }
  const double members = comm.members;
  switch (comm.kind) {
    case CommKind::kAllReduce:
      exchange.bytes = 2 * (members - 1) / members * comm.bytes;
      break;
    case CommKind::kAllGather:
    case CommKind::kReduceScatter:
      exchange.bytes = (members - 1) / members * comm.bytes;
      break;
    case CommKind::kAllToAll:
      ToEach(comm, NcclGroupOf(options, training, comm).nodes, &exchange);
      break;
    case CommKind::kRing:
      exchange.bytes = (members - 1) * comm.bytes;
      break;
  }
  return exchange;
}

std::vector<PassExchange> ExchangesOf(const AnalyticOptions& options,
                                      const TrainingSpec& training,
                                      const ModelOp& op, const OpTime& time,
                                      OpPass pass) {
  std::vector<PassExchange> exchanges;
  for (const OpComm& comm : op.comms) {
    if (comm.pass != pass || !IsTraffic(training, comm)) continue;
    PassExchange one = ExchangeOf(options, training, comm);
    const Overlap overlap = OverlapOf(options, op, comm);
    one.is_beside = overlap.beside;
    double first = overlap.pieces > 0 ? 1.0 / overlap.pieces : 0;
    if (overlap.beside && comm.beside_part < 1 && one.seconds > 0) {
      first = AloneSeconds(comm, one.seconds,
                           time.kernel_seconds[static_cast<int>(pass)]) /
              one.seconds;
    }
    if (first > 0) {
      // Nothing hides the first piece, or what is behind its part of the
      // computation.
      PassExchange alone = one;
      alone.is_beside = false;
      AddExchanges({alone}, first, &exchanges);
    }
    if (one.is_beside) {
      const auto at = static_cast<int>(pass);
      one.compute_s = time.kernel_seconds[at] + time.slower_seconds[at];
    }
    // Several beside one computation share it.
    const bool shares =
        std::any_of(exchanges.begin(), exchanges.end(),
                    [](const PassExchange& other) { return other.is_beside; });
    if (shares) one.compute_s = 0;
    if (first >= 1) continue;
    // The rest of them is beside the whole computation.
    one.compute_s /= 1 - first;
    AddExchanges({one}, 1 - first, &exchanges);
  }
  return exchanges;
}

std::vector<StageExchanges> ExchangesOfStages(
    const ModelSpec& model, const TrainingSpec& training,
    const AnalyticOptions* options, const StageLayout& layout,
    const std::vector<int>& rank_of_stage) {
  std::vector<StageExchanges> stages;
  if (options == nullptr) return stages;
  const std::vector<Recompute> recompute =
      RecomputeOfStages(training, rank_of_stage);
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    StageExchanges& sum = stages.emplace_back();
    sum.layers = 0;
    for (const StageBlock& block : layout.stages[stage]) {
      const double count =
          static_cast<double>(block.count) * block.part * training.slices;
      sum.layers += static_cast<int>(block.count);
      const bool is_layer =
          block.kind != BlockKind::kEmbedding && block.kind != BlockKind::kHead;
      for (const ModelOp& op :
           BlockOps(model, training, block.kind, block.first_layer)) {
        for (OpComm comm : op.comms) {
          if (!IsTraffic(training, comm)) continue;
          comm.overlaps = false;
          const std::vector<PassExchange> one = {
              ExchangeOf(*options, training, comm)};
          const double again =
              comm.pass == OpPass::kForward && is_layer
                  ? CommRecomputedPart(op, comm, recompute[stage])
                  : 0;
          if (again > 0) AddExchanges(one, again * count, &sum.recompute);
          AddExchanges(one, count,
                       comm.pass == OpPass::kForward ? &sum.forward
                       : comm.pass == OpPass::kBackwardInput
                           ? &sum.backward_input
                           : &sum.backward_weight);
        }
      }
    }
    AddExchanges(sum.recompute, 1, &sum.backward_input);
    sum.layers = std::max(1, sum.layers);
  }
  return stages;
}

}  // namespace pipewright
