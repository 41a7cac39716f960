#include "sim/engine/event_exchanges.h"

#include <algorithm>
#include <limits>

#include "sim/program/lane_exchanges.h"

namespace pipewright {
namespace {

constexpr size_t kManyLinks = 16;

// A link carries no more of it than its time says, whatever it could: an
// estimate knows what devices that send alike leave each other of a card.
double PaceOf(const PassExchange& exchange, double parts) {
  const double moving_s = exchange.seconds - exchange.latency_s;
  return moving_s > 0 ? exchange.bytes / parts / moving_s
                      : std::numeric_limits<double>::infinity();
}

}  // namespace

ExchangeSources::ExchangeSources(const Program& program, bool share_links,
                                 TrafficSources* sources)
    : program_(program) {
  if (program.network.cluster == nullptr || !share_links ||
      program.interference != nullptr) {
    return;
  }
  for (int replica = 0; replica < program.replicas; ++replica) {
    if (program.OfReplica(replica).exchanges.empty()) continue;
    for (int rank = 0; rank < program.pp(); ++rank) {
      AddDevice(replica, rank, sources);
    }
  }
}

void ExchangeSources::AddDevice(int replica, int rank,
                                TrafficSources* sources) {
  const DpClass& own = program_.OfReplica(replica);
  struct Flows {
    ExchangeFlows flows;
    double most_per_s = 0;
  };
  std::map<Key, Flows> known;
  int widest = 1;
  double longest_s = 0;
  for (const Lane& lane : own.ranks[rank].lanes) {
    if (lane.exchanges < 0 || lane.passes == 0) continue;
    longest_s = std::max(longest_s, lane.seconds);
    for (const PassExchange& each : own.exchanges[lane.exchanges].each) {
      const auto [entry, is_new] = known.try_emplace(KeyOf(each));
      Flows& flows = entry->second;
      if (is_new) {
        flows.flows = FlowsOfExchange(program_, each, replica, rank);
      }
      flows.most_per_s =
          std::max(flows.most_per_s, PaceOf(each, flows.flows.parts));
      largest_bytes_ = std::max(largest_bytes_, each.bytes * longest_s);
      if (each.group == CommGroup::kExpert) {
        widest = std::max(widest, each.members);
      }
    }
  }
  const int owner =
      FirstOfExchange(program_, widest, replica) * program_.pp() + rank;
  for (auto& [key, flows] : known) {
    const int source =
        sources->Add({.flows = {.loads = std::move(flows.flows.loads)},
                      .most_per_s = flows.most_per_s,
                      .owner = owner,
                      .replica = replica});
    if (source < 0) continue;
    sources_[{replica * program_.pp() + rank, key}] = {source,
                                                       flows.flows.parts};
  }
}

const ExchangeSources::Source* ExchangeSources::Find(
    int device, const PassExchange& exchange) const {
  const auto found = sources_.find({device, KeyOf(exchange)});
  return found == sources_.end() ? nullptr : &found->second;
}

size_t ExchangeSources::MostLinks(const TrafficSources& sources) const {
  size_t most = 0;
  for (const auto& [key, source] : sources_) {
    most = std::max(most, sources.plan(source.source).shared.size());
  }
  return most;
}

PassExchanges::PassExchanges(const Program& program,
                             const ExchangeSources& sources,
                             const TrafficSources& traffic, EventTimers* timers)
    : timers_(*timers) {
  if (sources.empty()) return;
  const int devices = program.pp() * program.replicas;
  of_lanes_.resize(devices);
  running_.resize(devices);
  for (int device = 0; device < devices; ++device) {
    const DpClass& own = program.OfReplica(device / program.pp());
    const bool has_layers = !own.ranks[device % program.pp()].layers.empty();
    for (const LaneExchanges& lane : own.exchanges) {
      of_lanes_[device].push_back(
          PlanOf(device, lane, has_layers, sources, traffic));
      any_ |= !of_lanes_[device].back().steps.empty();
    }
  }
  time_lone_transfers_ = !any_ || sources.MostLinks(traffic) <= kManyLinks;
}

// What of the exchanges of a lane can meet others is a step of its own; the
// rest stays computation.
PassExchanges::Plan PassExchanges::PlanOf(int device, const LaneExchanges& lane,
                                          bool has_layers,
                                          const ExchangeSources& sources,
                                          const TrafficSources& traffic) const {
  Plan plan;
  // A layer of its own is a piece.
  plan.pieces = has_layers ? 1 : lane.pieces;
  double sum_s = 0;
  for (const PassExchange& each : lane.each) {
    const ExchangeSources::Source* const own = sources.Find(device, each);
    if (own == nullptr || !traffic.Shared(own->source)) continue;
    const double rate = traffic.plan(own->source).bytes_per_s;
    // No more than fits into its time.
    const double bytes =
        std::min(each.bytes / own->parts,
                 rate * std::max(0.0, each.seconds - each.latency_s));
    if (bytes <= 0) continue;
    const double latency_s = each.seconds - bytes / rate;
    plan.steps.push_back(
        {.before_s = latency_s,
         .source = own->source,
         .bytes = bytes,
         .least_s =
             each.is_beside ? std::max(0.0, each.compute_s - latency_s) : 0});
    sum_s +=
        each.is_beside ? std::max(each.compute_s, each.seconds) : each.seconds;
  }
  if (plan.steps.empty()) return plan;
  // Times that are given may leave exchanges less than they take.
  const double scale = sum_s > 1 ? 1 / sum_s : 1;
  for (Step& step : plan.steps) {
    step.before_s *= scale;
    step.bytes *= scale;
    step.least_s *= scale;
  }
  plan.steps[0].before_s += std::max(0.0, 1 - sum_s);
  return plan;
}

bool PassExchanges::Alike(int device, int other) const {
  if (of_lanes_.empty()) return true;
  const auto same_step = [](const Step& one, const Step& two) {
    return one.before_s == two.before_s && one.bytes == two.bytes &&
           one.least_s == two.least_s;
  };
  return std::equal(of_lanes_[device].begin(), of_lanes_[device].end(),
                    of_lanes_[other].begin(), of_lanes_[other].end(),
                    [&](const Plan& one, const Plan& two) {
                      return one.pieces == two.pieces &&
                             std::equal(one.steps.begin(), one.steps.end(),
                                        two.steps.begin(), two.steps.end(),
                                        same_step);
                    });
}

bool PassExchanges::Begin(int device, const RankProgram& rank,
                          const Pass* block, int parts,
                          const std::array<double, 2>& alone_s,
                          double start_s) {
  std::array<const Plan*, 2> plans = {};
  int pieces = 0;
  for (int part = 0; part < parts; ++part) {
    const int32_t own = rank.lanes[block[part].lane()].exchanges;
    if (own < 0 || of_lanes_[device].empty()) continue;
    const Plan& plan = of_lanes_[device][own];
    if (plan.steps.empty()) continue;
    plans[part] = &plan;
    pieces = std::max(pieces, plan.pieces);
  }
  if (pieces == 0) return false;
  Running& running = running_[device];
  running.steps.clear();
  running.next = 0;
  // Time so far of a pass without exchanges beside one with them.
  double before_s = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    for (int part = 0; part < parts; ++part) {
      const double own_s = alone_s[part] / pieces;
      if (plans[part] == nullptr) {
        before_s += own_s;
        continue;
      }
      for (const Step& step : plans[part]->steps) {
        running.steps.push_back({.before_s = before_s + own_s * step.before_s,
                                 .source = step.source,
                                 .bytes = own_s * step.bytes,
                                 .least_s = own_s * step.least_s});
        before_s = 0;
      }
    }
  }
  if (before_s > 0) running.steps.push_back({.before_s = before_s});
  SetTimer(device, start_s);
  return true;
}

void PassExchanges::SetTimer(int device, double now_s) {
  Running& running = running_[device];
  running.start_s = now_s + running.steps[running.next].before_s;
  timers_.At(running.start_s, EventKind::kExchange, device);
}

std::optional<EventTransfer> PassExchanges::Flow(int device, int iteration,
                                                 double* end_s) const {
  const Running& running = running_[device];
  const Step& step = running.steps[running.next];
  if (step.source < 0 || step.bytes <= 0) {
    *end_s = running.start_s + step.least_s;
    return std::nullopt;
  }
  return EventTransfer{.of = EventTransfer::Of::kExchange,
                       .index = device,
                       .source = step.source,
                       .iteration = iteration,
                       .bytes = step.bytes,
                       .start_s = running.start_s,
                       .beside = std::nullopt};
}

std::optional<double> PassExchanges::End(int device, double end_s) {
  Running& running = running_[device];
  const double over_s =
      std::max(end_s, running.start_s + running.steps[running.next].least_s);
  if (++running.next == running.steps.size()) return over_s;
  SetTimer(device, over_s);
  return std::nullopt;
}

}  // namespace pipewright
