// Exchanges inside passes, where their links are not theirs alone. A pass then
// is computation and flows in turn, which alone take what the pass takes. The
// flows are those of its own device of the pipeline: a rank that is ahead of
// others of its group of experts does not wait for them here, and neither does
// one of several ranks that send over the same cards.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "sim/engine/event_run.h"
#include "sim/program/lane_exchanges.h"

namespace pipewright {
namespace {

constexpr size_t kManyLinks = 16;

ExchangePlans::Key ExchangeKeyOf(const PassExchange& exchange) {
  return {exchange.group, exchange.members, exchange.to_all};
}

// A link carries no more of it than its time says, whatever it could: an
// estimate knows what devices that send alike leave each other of a card.
double PaceOf(const PassExchange& exchange, double parts) {
  const double moving_s = exchange.seconds - exchange.latency_s;
  return moving_s > 0 ? exchange.bytes / parts / moving_s
                      : std::numeric_limits<double>::infinity();
}

}  // namespace

// One source for each kind of group of each device.
void EventRun::PlanExchangeSources() {
  if (program_.network.cluster == nullptr || !share_links_ ||
      program_.interference != nullptr) {
    return;
  }
  for (const Device& device : devices_) {
    const DpClass& own = *device.own;
    if (own.exchanges.empty()) continue;
    struct Flows {
      ExchangeFlows flows;
      double most_per_s = 0;
    };
    std::map<ExchangePlans::Key, Flows> known;
    int widest = 1;
    double longest_s = 0;
    for (const Lane& lane : device.program().lanes) {
      if (lane.exchanges < 0 || lane.passes == 0) continue;
      longest_s = std::max(longest_s, lane.seconds);
      for (const PassExchange& each : own.exchanges[lane.exchanges].each) {
        const auto [entry, is_new] = known.try_emplace(ExchangeKeyOf(each));
        Flows& flows = entry->second;
        if (is_new) {
          flows.flows =
              FlowsOfExchange(program_, each, device.replica, device.rank);
        }
        flows.most_per_s =
            std::max(flows.most_per_s, PaceOf(each, flows.flows.parts));
        exchanges_.largest_bytes =
            std::max(exchanges_.largest_bytes, each.bytes * longest_s);
        if (each.group == CommGroup::kExpert) {
          widest = std::max(widest, each.members);
        }
      }
    }
    const int owner = DeviceOf(
        FirstOfExchange(program_, widest, device.replica), device.rank);
    for (auto& [key, flows] : known) {
      const int source =
          AddSource({.loads = std::move(flows.flows.loads)}, false);
      if (source < 0) continue;
      sources_[source].most_per_s = flows.most_per_s;
      sources_[source].owner = owner;
      exchanges_.sources[{DeviceOf(device.replica, device.rank), key}] = {
          source, flows.flows.parts};
    }
  }
}

// What of the exchanges of each lane can meet others is a step of its own; the
// rest stays computation.
void EventRun::PlanExchangeSteps() {
  if (exchanges_.sources.empty()) return;
  exchanges_.of_lanes.resize(devices_.size());
  exchanges_.running.resize(devices_.size());
  for (size_t index = 0; index < devices_.size(); ++index) {
    const Device& device = devices_[index];
    for (const LaneExchanges& lane : device.own->exchanges) {
      ExchangePlan& plan = exchanges_.of_lanes[index].emplace_back();
      // A layer of its own is a piece.
      plan.pieces = device.program().layers.empty() ? lane.pieces : 1;
      double sum_s = 0;
      for (const PassExchange& each : lane.each) {
        const auto found = exchanges_.sources.find(
            {static_cast<int>(index), ExchangeKeyOf(each)});
        if (found == exchanges_.sources.end()) continue;
        const auto [source, parts] = found->second;
        if (!Shared(source)) continue;
        const double rate = plans_[source].bytes_per_s;
        // No more than fits into its time.
        const double bytes =
            std::min(each.bytes / parts,
                     rate * std::max(0.0, each.seconds - each.latency_s));
        if (bytes <= 0) continue;
        const double latency_s = each.seconds - bytes / rate;
        plan.steps.push_back(
            {.before_s = latency_s,
             .source = source,
             .bytes = bytes,
             .least_s = each.is_beside
                            ? std::max(0.0, each.compute_s - latency_s)
                            : 0});
        sum_s += each.is_beside ? std::max(each.compute_s, each.seconds)
                                : each.seconds;
      }
      if (plan.steps.empty()) continue;
      exchanges_.any = true;
      // Times that are given may leave exchanges less than they take.
      const double scale = sum_s > 1 ? 1 / sum_s : 1;
      for (ExchangeStep& step : plan.steps) {
        step.before_s *= scale;
        step.bytes *= scale;
        step.least_s *= scale;
      }
      plan.steps[0].before_s += std::max(0.0, 1 - sum_s);
    }
  }
  // Flows over many links are hardly ever alone on all of them, and to ask each
  // of these costs more than it saves.
  size_t most = 0;
  for (const auto& [key, source] : exchanges_.sources) {
    most = std::max(most, plans_[source.source].shared.size());
  }
  if (exchanges_.any && most > kManyLinks) time_lone_transfers_ = false;
}

// False where the block exchanges nothing that can meet others. Else it has
// been started.
bool EventRun::RunExchanges(int index, const Pass* block, int parts) {
  Device& device = devices_[index];
  const std::vector<Lane>& lanes = device.program().lanes;
  std::array<const ExchangePlan*, 2> plans = {};
  int pieces = 0;
  for (int part = 0; part < parts; ++part) {
    const int32_t own = lanes[block[part].lane()].exchanges;
    if (own < 0 || exchanges_.of_lanes[index].empty()) continue;
    const ExchangePlan& plan = exchanges_.of_lanes[index][own];
    if (plan.steps.empty()) continue;
    plans[part] = &plan;
    pieces = std::max(pieces, plan.pieces);
  }
  if (pieces == 0) return false;
  RunningSteps& running = exchanges_.running[index];
  running.steps.clear();
  running.next = 0;
  // Time so far of a pass without exchanges beside one with them.
  double before_s = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    for (int part = 0; part < parts; ++part) {
      const double own_s = device.block_s[part] / pieces;
      if (plans[part] == nullptr) {
        before_s += own_s;
        continue;
      }
      for (const ExchangeStep& step : plans[part]->steps) {
        running.steps.push_back({.before_s = before_s + own_s * step.before_s,
                                 .source = step.source,
                                 .bytes = own_s * step.bytes,
                                 .least_s = own_s * step.least_s});
        before_s = 0;
      }
    }
  }
  if (before_s > 0) running.steps.push_back({.before_s = before_s});
  device.busy = true;
  BeginExchange(index, device.block_start_s);
  return true;
}

// Sets the timer of the flow that is next.
void EventRun::BeginExchange(int index, double now_s) {
  RunningSteps& running = exchanges_.running[index];
  running.start_s = now_s + running.steps[running.next].before_s;
  timers_.At(running.start_s, EventKind::kExchange, index);
}

void EventRun::StartExchange(int index) {
  const Device& device = devices_[index];
  const RunningSteps& running = exchanges_.running[index];
  const double now_s = running.start_s;
  const ExchangeStep& step = running.steps[running.next];
  if (step.source < 0 || step.bytes <= 0) {
    return EndExchange(index, now_s + step.least_s);
  }
  Share(NewTransfer({.of = Transfer::Of::kExchange,
                     .index = index,
                     .source = step.source,
                     .iteration = device.iteration,
                     .bytes = step.bytes,
                     .start_s = now_s,
                     .beside = Transfer::Beside::kNone}),
        now_s);
}

// Its flow has ended; computation beside it may not have.
void EventRun::EndExchange(int index, double end_s) {
  Device& device = devices_[index];
  RunningSteps& running = exchanges_.running[index];
  const double over_s =
      std::max(end_s, running.start_s + running.steps[running.next].least_s);
  if (++running.next < running.steps.size()) {
    return BeginExchange(index, over_s);
  }
  device.clock_s = over_s;
  NoteBlock(device, over_s);
  if (over_s > end_s) return timers_.At(over_s, EventKind::kComputeEnd, index);
  EndBlock(index);
  Continue(index);
}

}  // namespace pipewright
