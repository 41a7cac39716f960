#include "sim/program/lane_exchanges.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "sim/cost/exchange.h"
#include "sim/program/ring_traffic.h"
#include "sim/topology/mapping.h"

namespace pipewright {
namespace {

// A pass is so many times computation and exchanges in turn at most: then a
// stage of many layers is as good as each of them by itself. [numerics]
constexpr int kMostPieces = 8;

ExchangeFlows RingsOf(const Network& network,
                      std::vector<std::vector<int>> groups) {
  const std::shared_ptr<const RingTraffic> traffic =
      KnownRingTraffic(network.cluster, std::move(groups));
  return {.loads = traffic->loads,
          .parts = static_cast<double>(traffic->links.rings)};
}

}  // namespace

ExchangeFlows FlowsOfExchange(const Program& program,
                              const PassExchange& exchange, int replica,
                              int rank) {
  const Network& network = program.network;
  if (network.cluster == nullptr) return {};
  const RankMapping& mapping = *network.mapping;
  const int contexts = network.context_parallel;
  const int tensor = mapping.devices_per_rank() / contexts;
  const auto device_of = [&](int of_replica, int context, int index) {
    return mapping.DeviceOf(of_replica, rank, context * tensor + index);
  };
  std::vector<std::vector<int>> groups;
  switch (exchange.group) {
    case CommGroup::kTensor:
      if (exchange.members != tensor) return {};
      groups.resize(contexts);
      break;
    case CommGroup::kContext:
      if (exchange.members != contexts) return {};
      groups.resize(tensor);
      break;
    case CommGroup::kExpert:
      if (program.replicas * contexts % exchange.members != 0) return {};
      break;
  }
  if (!exchange.to_all || exchange.group == CommGroup::kTensor) {
    if (groups.empty()) return {};
    for (int context = 0; context < contexts; ++context) {
      for (int index = 0; index < tensor; ++index) {
        groups[exchange.group == CommGroup::kTensor ? context : index]
            .push_back(device_of(replica, context, index));
      }
    }
    return RingsOf(network, std::move(groups));
  }
  // Parts of a context send to each other alone.
  const auto with = [&](int context) {
    if (exchange.group == CommGroup::kExpert) {
      return mapping.ExpertsWith(replica, context, contexts, exchange.members);
    }
    std::vector<std::pair<int, int>> parts;
    for (int part = 0; part < contexts; ++part) {
      parts.emplace_back(replica, part);
    }
    return parts;
  };
  std::vector<std::vector<LinkId>> routes;
  std::vector<double> weights;
  for (int context = 0; context < contexts; ++context) {
    for (const auto& [to_replica, to_context] : with(context)) {
      if (to_replica == replica && to_context == context) continue;
      for (int index = 0; index < tensor; ++index) {
        const int from = device_of(replica, context, index);
        const int to = device_of(to_replica, to_context, index);
        const std::vector<Device>& devices = network.cluster->devices();
        routes.push_back(network.cluster->Route(from, to));
        weights.push_back(
            devices[from].node == devices[to].node ? exchange.inside : 1);
      }
    }
  }
  return {.loads = network.cluster->Bundle(routes, weights).loads};
}

int FirstOfExchange(const Program& program, int widest, int replica) {
  const int contexts = program.network.context_parallel;
  if (!program.network.mapping->is_plain()) return replica;
  const int together = std::max(1, widest / contexts);
  return replica / together * together;
}

LaneExchanges LaneExchangesOf(const StageExchanges& stage, PassKind kind,
                              double seconds) {
  LaneExchanges lane = {.pieces = std::min(stage.layers, kMostPieces)};
  if (seconds <= 0) return lane;
  switch (kind) {
    case PassKind::kForward:
      AddExchanges(stage.forward, 1 / seconds, &lane.each);
      break;
    case PassKind::kBackwardInput:
      AddExchanges(stage.backward_input, 1 / seconds, &lane.each);
      break;
    case PassKind::kBackwardWeight:
      AddExchanges(stage.backward_weight, 1 / seconds, &lane.each);
      break;
    case PassKind::kBackwardFull:
      AddExchanges(stage.backward_input, 1 / seconds, &lane.each);
      AddExchanges(stage.backward_weight, 1 / seconds, &lane.each);
      break;
    case PassKind::kRecompute:
      AddExchanges(stage.recompute, 1 / seconds, &lane.each);
      break;
    default:
      break;
  }
  return lane;
}

}  // namespace pipewright
