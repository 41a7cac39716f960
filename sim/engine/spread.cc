#include "sim/engine/spread.h"

#include <algorithm>

namespace pipewright {
namespace {

// A link that carries more of a source's flows, or that these fill by more, is
// shared exactly.
constexpr double kMostSpread = 1.0 / 16;

}  // namespace

// Nodes, then devices: those of the own node are served one by one.
int32_t SpreadPlanner::PlaceOf(int from, int to, int other) const {
  const std::vector<Device>& devices = cluster_.devices();
  if (devices[from].node != devices[to].node) return devices[other].node;
  return devices.back().node + 1 + other;
}

TrafficSource SpreadPlanner::Add(
    const Key& key, const std::vector<std::pair<int, int>>& pairs) {
  const auto [known, is_new] =
      pool_of_.try_emplace(key, static_cast<int>(building_.size()));
  const int pool = known->second;
  if (is_new) {
    Building& added = building_.emplace_back();
    added.flows.resize(cluster_.links().size());
    added.place.resize(cluster_.links().size(), kNowhere);
  }
  Building& building = building_[pool];
  const FlowBundle all = cluster_.BundleBetween(pairs);
  TrafficSource source;
  source.pool = pool;
  source.most_per_s = cluster_.RateOf(all.loads);
  source.flows.latency_s = all.latency_s;
  for (const LinkLoad& load : all.loads) {
    const double room = cluster_.links()[load.link].bytes_per_s * kMostSpread;
    const bool spread =
        load.flows <= kMostSpread * static_cast<double>(key.peers) &&
        load.flows * source.most_per_s <= room;
    if (spread) {
      building.flows[load.link] += load.flows;
    } else {
      source.flows.loads.push_back(load);
    }
  }
  ++building.sources;
  building.rate_sum += source.most_per_s;
  building.all_flows += static_cast<double>(pairs.size());
  std::vector<LinkId> route;
  for (const auto& [from, to] : pairs) {
    const int32_t place = PlaceOf(from, to, key.pulls ? from : to);
    if (building.to_places.size() <= static_cast<size_t>(place)) {
      building.to_places.resize(place + 1);
    }
    building.to_places[place] += 1;
    route.clear();
    cluster_.AddRoute(from, to, &route);
    for (const LinkId link : route) {
      int32_t& there = building.place[link];
      if (there != place) there = there == kNowhere ? place : kSeveral;
    }
  }
  return source;
}

std::vector<SpreadPool> SpreadPlanner::Finish() const {
  std::vector<SpreadPool> pools;
  for (const Building& building : building_) {
    SpreadPool& pool = pools.emplace_back();
    pool.sources = building.sources;
    pool.bytes_per_s = building.rate_sum / building.sources;
    std::vector<int32_t> number_of(building.to_places.size(), -1);
    for (size_t link = 0; link < building.flows.size(); ++link) {
      if (building.flows[link] == 0) continue;
      const int32_t place = building.place[link];
      const auto added = static_cast<int32_t>(pool.parts.size());
      int32_t number = added;  // where flows to several places go on its own
      if (place >= 0) {
        if (number_of[place] < 0) number_of[place] = added;
        number = number_of[place];
      }
      if (number == added) {
        const double flows =
            place >= 0 ? building.to_places[place] : building.flows[link];
        pool.parts.push_back(flows / building.all_flows);
      }
      pool.loads.push_back({.link = static_cast<LinkId>(link),
                            .flows = building.flows[link] / building.sources,
                            .place = number});
    }
  }
  return pools;
}

}  // namespace pipewright
