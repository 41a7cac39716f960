// FluidLinks: what is spread over very many links.
#include <algorithm>
#include <cmath>

#include "sim/engine/fluid_links.h"

namespace pipewright {
namespace {

// Tolerance of a link's room for a pool, and of the rates of its sources.
constexpr double kTolerance = 1.0 / 64;

}  // namespace

void FluidLinks::AddPools(const std::vector<SpreadPool>& pools) {
  for (size_t number = 0; number < pools.size(); ++number) {
    const SpreadPool& given = pools[number];
    Pool& pool = pools_.emplace_back();
    pool.bytes_per_s = given.bytes_per_s;
    pool.tolerance = kTolerance * given.sources;
    for (const double part : given.parts) pool.places.push_back({.part = part});
    for (const SpreadLoad& load : given.loads) {
      spreads_.push_back({.pool = static_cast<uint32_t>(number),
                          .link = load.link,
                          .place = static_cast<uint32_t>(load.place),
                          .flows = load.flows});
    }
  }
  std::stable_sort(spreads_.begin(), spreads_.end(),
                   [](const Spread& left, const Spread& right) {
                     return left.link < right.link;
                   });
  for (uint32_t index = 0; index < spreads_.size(); ++index) {
    const Spread& spread = spreads_[index];
    SharedLink& link = links_[spread.link];
    if (link.last_spread == 0) link.first_spread = index;
    link.last_spread = index + 1;
    Pool& pool = pools_[spread.pool];
    pool.spreads.push_back(index);
    pool.places[spread.place].spreads.push_back(index);
  }
}

void FluidLinks::EnterPool(uint32_t flow, Pool& pool) {
  flows_[flow].in_pool = static_cast<uint32_t>(pool.running.size());
  pool.running.push_back(flow);
}

void FluidLinks::LeavePool(const Flow& flow, Pool& pool) {
  const uint32_t moved = pool.running.back();
  pool.running[flow.in_pool] = moved;
  flows_[moved].in_pool = flow.in_pool;
  pool.running.pop_back();
}

// True where something has to be solved again.
bool FluidLinks::TellPools() {
  bool told = false;
  for (Pool& pool : pools_) {
    const auto running = static_cast<double>(pool.running.size());
    const bool more = running != pool.told_running &&
                      std::abs(running - pool.told_running) >= pool.tolerance;
    const bool slower = std::abs(pool.slowed - pool.told_slowed) >=
                        kTolerance * pool.told_slowed;
    if (!slower && !more) continue;
    told = true;
    if (pool.slowed != pool.told_slowed) {
      pool.told_slowed = pool.slowed;
      started_.insert(started_.end(), pool.running.begin(), pool.running.end());
    }
    TellLinks(pool);
  }
  return told;
}

// A source stays the longer where it is slowed, and there are the more of them:
// as many bytes go over every link as without.
double FluidLinks::FlowsOf(const Spread& spread) const {
  const Pool& pool = pools_[spread.pool];
  return spread.flows * pool.told_running * spread.slowed / pool.told_slowed;
}

void FluidLinks::AddUp(LinkId number) {
  SharedLink& link = links_[number];
  link.spread_per_s = 0;
  for (uint32_t index = link.first_spread; index < link.last_spread; ++index) {
    link.spread_per_s +=
        FlowsOf(spreads_[index]) * pools_[spreads_[index].pool].bytes_per_s;
  }
  // Flows are told before the next solution, not in the middle of one.
  if (link.binds != link.Binds()) to_bind_.push_back(number);
}

void FluidLinks::TellLinks(Pool& pool) {
  pool.told_running = static_cast<double>(pool.running.size());
  for (const uint32_t index : pool.spreads) {
    const LinkId number = spreads_[index].link;
    SharedLink& link = links_[number];
    AddUp(number);
    if (link.users.empty()) {
      Settle(link);
    } else if (link.is_full || link.Binds()) {
      Change(number);
    }
  }
}

// `slowed` is 1 or more, but for rounding.
void FluidLinks::SetSlowed(uint32_t index, double slowed) {
  Spread& spread = spreads_[index];
  slowed = std::max(1.0, slowed);
  if (slowed == spread.slowed) return;
  spread.slowed = slowed;
  AddUp(spread.link);
  Pool& pool = pools_[spread.pool];
  SpreadPlace& place = pool.places[spread.place];
  double most = 1;
  for (const uint32_t other : place.spreads) {
    most = std::max(most, spreads_[other].slowed);
  }
  pool.slowed += place.part * (most - place.slowed);
  place.slowed = most;
}

// On a link that is full by others than pools: who comes there meets the flows
// that are there on average, and is one more itself.
void FluidLinks::SetMet(uint32_t index, double slowed) {
  const Spread& spread = spreads_[index];
  const Pool& pool = pools_[spread.pool];
  const double own_per_s =
      spread.flows * pool.bytes_per_s / pool.places[spread.place].part;
  const double own = own_per_s / links_[spread.link].bytes_per_s;
  SetSlowed(index, slowed > 1 ? slowed + std::min(own, 1.0) : 1);
}

// A link that only pools are on, or on which nobody is in anybody's way.
void FluidLinks::Settle(const SharedLink& link) {
  const double slowed =
      link.users.empty() ? link.spread_per_s / link.bytes_per_s : 1;
  for (uint32_t index = link.first_spread; index < link.last_spread; ++index) {
    SetSlowed(index, slowed);
  }
}

// Pools on a link of the part that is solved.
void FluidLinks::VisitSpreads(uint32_t number) {
  Filling& filling = links_in_[number];
  const SharedLink& link = links_[filling.link];
  for (uint32_t index = link.first_spread; index < link.last_spread; ++index) {
    const Spread& spread = spreads_[index];
    const Pool& pool = pools_[spread.pool];
    if (pool.told_running == 0) {
      SetSlowed(index, 1);
      continue;
    }
    const double flows = FlowsOf(spread);
    const auto load = static_cast<uint32_t>(loads_in_.size());
    loads_in_.push_back({number, flows});
    flows_in_.push_back({.first_load = load,
                         .last_load = load + 1,
                         .alone = pool.bytes_per_s,
                         .spread = index});
    filling.all_flows += flows;
    ++filling.spreads;
  }
}

}  // namespace pipewright
