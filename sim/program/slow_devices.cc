#include "sim/program/slow_devices.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/check.h"
#include "sim/cost/exchange.h"
#include "sim/program/program.h"

namespace pipewright {

namespace {

// So many times as long the bytes take where links of each kind are slower.
double LongerBy(const PassExchange& exchange, const SlowPath& path) {
  const auto on = [&](LinkKind kind) {
    return exchange.on_links_s[static_cast<int>(kind)];
  };
  const double between = exchange.to_all ? path.pair : path.ring;
  const double now_s = std::max(
      {on(LinkKind::kNvlink), on(LinkKind::kCard), on(LinkKind::kFabric)});
  const double then_s = std::max({on(LinkKind::kNvlink) * path.nvlink,
                                  on(LinkKind::kCard) * path.card,
                                  on(LinkKind::kFabric) * between});
  return now_s > 0 ? then_s / now_s : 1;
}

double SecondsIn(const PassExchange& exchange) {
  return exchange.is_beside ? std::max(exchange.compute_s, exchange.seconds)
                            : exchange.seconds;
}

// What a pass takes for each second that it took, with what it then exchanges
// for each second.
struct ScaledLane {
  double seconds = 1;
  LaneExchanges exchanges;
};

ScaledLane Scaled(const LaneExchanges& lane, const Slowness& slowness) {
  ScaledLane scaled = {.exchanges = lane};
  double exchanged_s = 0;
  for (const PassExchange& each : lane.each) exchanged_s += SecondsIn(each);
  // Times that are given may leave exchanges less than they take.
  const double fits = exchanged_s > 1 ? 1 / exchanged_s : 1;
  scaled.seconds = slowness.device * std::max(0.0, 1 - exchanged_s);
  for (PassExchange& each : scaled.exchanges.each) {
    const SlowPath& path = slowness.exchanges[static_cast<int>(each.group)];
    const double longer = LongerBy(each, path);
    const double moving_s = longer * (each.seconds - each.latency_s);
    each.latency_s +=
        each.rounds * (each.to_all ? path.latency_s : path.ring_latency_s);
    each.seconds = each.latency_s + moving_s;
    each.compute_s *= slowness.device;
    scaled.seconds += fits * SecondsIn(each);
  }
  if (scaled.seconds <= 0) return scaled;
  std::vector<PassExchange> each;
  AddExchanges(scaled.exchanges.each, fits / scaled.seconds, &each);
  scaled.exchanges.each = std::move(each);
  return scaled;
}

}  // namespace

void ScaleRank(const Slowness& slowness, int rank, DpClass* own) {
  if (slowness == Slowness()) return;
  struct Known {
    double seconds = 1;
    int32_t exchanges = -1;
  };
  std::map<int32_t, Known> known;  // by those before
  RankProgram& program = own->ranks[rank];
  for (size_t index = 0; index < program.lanes.size(); ++index) {
    if (!IsComputePass(Pass::KindOf(index))) continue;
    Lane& lane = program.lanes[index];
    if (lane.exchanges < 0) {
      lane.seconds *= slowness.device;
      continue;
    }
    const auto [entry, is_new] = known.try_emplace(lane.exchanges);
    if (is_new) {
      ScaledLane scaled = Scaled(own->exchanges[lane.exchanges], slowness);
      entry->second = {
          .seconds = scaled.seconds,
          .exchanges = static_cast<int32_t>(own->exchanges.size())};
      own->exchanges.push_back(std::move(scaled.exchanges));
    }
    lane.seconds *= entry->second.seconds;
    lane.exchanges = entry->second.exchanges;
  }
  for (SideOp& op : program.side_ops) {
    // What a push waits for is another device's.
    if (!IsOneSided(op.kind)) op.seconds *= slowness.device;
  }
}

void ScaleDevices(const DeviceFactors& factors,
                  const std::vector<SlowPaths>& paths, Program* program) {
  const int pp = program->pp();
  const size_t ranks = static_cast<size_t>(program->replicas) * pp;
  PW_CHECK(factors.empty() || factors.size() == ranks);
  PW_CHECK(paths.empty() || paths.size() == ranks);
  std::vector<DpClass> classes;
  std::vector<int> class_of_replica;
  // New classes, by the old class and the factors of its ranks.
  std::map<std::pair<int, std::vector<Slowness>>, int> known;
  for (int replica = 0; replica < program->replicas; ++replica) {
    std::vector<Slowness> own(pp);
    for (int rank = 0; rank < pp; ++rank) {
      const size_t at = static_cast<size_t>(replica) * pp + rank;
      if (!factors.empty()) own[rank].device = factors[at];
      if (!paths.empty()) own[rank].exchanges = paths[at];
    }
    const int old = program->ClassOf(replica);
    const auto [entry, is_new] = known.try_emplace(
        {old, std::move(own)}, static_cast<int>(classes.size()));
    if (is_new) {
      DpClass& made = classes.emplace_back(program->dp_class(old));
      for (int rank = 0; rank < pp; ++rank) {
        ScaleRank(entry->first.second[rank], rank, &made);
      }
    }
    class_of_replica.push_back(entry->second);
  }
  static_cast<DpClass&>(*program) = std::move(classes[0]);
  program->more_classes.assign(std::make_move_iterator(classes.begin() + 1),
                               std::make_move_iterator(classes.end()));
  program->class_of_replica =
      classes.size() > 1 ? std::move(class_of_replica) : std::vector<int>();
}

}  // namespace pipewright
