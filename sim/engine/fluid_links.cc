#include "sim/engine/fluid_links.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipewright {
namespace {

// Relative to the date, respectively to the rate. Far below the 1e-9 to which
// engines agree, far above rounding: replicas that do the same stay in step.
constexpr double kSameDate = 1e-13;
constexpr double kSameRate = 1e-13;

// More than this over what a link has is more than rounding.
constexpr double kWantedRoom = 1 + 1e-12;
// A link with less than this part left counts as full. It need not hold anybody
// up: then more is looked at than need be.
constexpr double kFull = 1e-9;
constexpr size_t kFluidArity = 4;
// If so many flows were looked at for each that is solved, and some more, the
// others are solved with them at once.
constexpr size_t kMostLooks = 4;
constexpr size_t kFewLooks = 256;
// Most rounds of telling pools at one date.
constexpr int kRounds = 4;

}  // namespace

bool FluidLinks::SharedLink::Binds() const {
  return users.size() + (spread_per_s > 0 ? 1 : 0) > 1 &&
         wanted_per_s + spread_per_s > kWantedRoom * bytes_per_s;
}

FluidLinks::FluidLinks(const Cluster& cluster,
                       const std::vector<SourcePlan>& plans,
                       const std::vector<SpreadPool>& pools)
    : links_(cluster.links().size()) {
  for (size_t link = 0; link < links_.size(); ++link) {
    links_[link].bytes_per_s = cluster.links()[link].bytes_per_s;
  }
  sources_.reserve(plans.size());
  for (const SourcePlan& plan : plans) {
    const auto first = static_cast<uint32_t>(loads_.size());
    if (plan.sharing == Sharing::kFlow) {
      loads_.insert(loads_.end(), plan.shared.begin(), plan.shared.end());
    }
    sources_.push_back({.first = first,
                        .last = static_cast<uint32_t>(loads_.size()),
                        .bytes_per_s = plan.bytes_per_s,
                        .pool = plan.pool});
  }
  AddPools(pools);
}

void FluidLinks::Start(double now_s, int number, double bytes,
                       uint32_t transfer) {
  const Source& source = sources_[number];
  const uint32_t count = source.last - source.first;
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(flows_.size());
    flows_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Flow& flow = flows_[index];
  if (flow.places < count) {
    flow.first_place = static_cast<uint32_t>(places_.size());
    flow.places = count;
    places_.resize(places_.size() + count);
    binding_.resize(places_.size());
  }
  flow.source = static_cast<uint32_t>(number);
  flow.transfer = transfer;
  flow.runs = true;
  flow.left = bytes;
  flow.since_s = now_s;
  flow.rate = 0;
  flow.alone = source.bytes_per_s;
  flow.binding = 0;
  flow.held_by = kNobody;
  for (uint32_t load = 0; load < count; ++load) {
    const LinkLoad& own = loads_[source.first + load];
    SharedLink& link = links_[own.link];
    places_[flow.first_place + load].user =
        static_cast<uint32_t>(link.users.size());
    link.users.push_back({index, flow.first_place + load});
    link.wanted_per_s += own.flows * source.bytes_per_s;
    if (link.binds) {
      AddBinding(&flow, own.link, load, own.flows);
    } else if (link.Binds()) {
      SetBinding(own.link);
    }
  }
  if (source.pool >= 0) EnterPool(index, pools_[source.pool]);
  started_.push_back(index);
}

void FluidLinks::Change(LinkId link) {
  if (links_[link].changed) return;
  links_[link].changed = true;
  changed_.push_back(link);
}

// Flows of many loads meet others on few of them at a time, so each knows
// which.
void FluidLinks::SetBinding(LinkId number) {
  SharedLink& link = links_[number];
  link.binds = !link.binds;
  link.used_per_s = 0;
  for (const User& user : link.users) {
    Flow& flow = flows_[user.flow];
    if (link.binds) {
      const double flows = FlowsOf(user);
      AddBinding(&flow, number, LoadOf(user), flows);
      link.used_per_s += flows * flow.rate;
      continue;
    }
    const uint32_t place = places_[user.place].binding;
    const Binding moved = binding_[flow.first_place + --flow.binding];
    binding_[flow.first_place + place] = moved;
    places_[flow.first_place + moved.load].binding = place;
  }
}

void FluidLinks::AddBinding(Flow* flow, LinkId link, uint32_t load,
                            double flows) {
  places_[flow->first_place + load].binding = flow->binding;
  binding_[flow->first_place + flow->binding++] = {link, load, flows};
}

void FluidLinks::Remove(uint32_t index) {
  Flow& flow = flows_[index];
  const Source& source = sources_[flow.source];
  for (uint32_t load = 0; load < source.last - source.first; ++load) {
    const LinkLoad& own = loads_[source.first + load];
    SharedLink& link = links_[own.link];
    if (link.is_full) Change(own.link);
    const uint32_t place = places_[flow.first_place + load].user;
    const User moved = link.users.back();
    link.users[place] = moved;
    places_[moved.place].user = place;
    link.users.pop_back();
    const bool idle = link.users.empty();  // then rounding is forgotten
    link.wanted_per_s =
        idle ? 0 : link.wanted_per_s - own.flows * source.bytes_per_s;
    if (!link.binds) continue;
    link.used_per_s -= own.flows * flow.rate;
    if (!link.Binds()) SetBinding(own.link);
  }
  if (source.pool >= 0) LeavePool(flow, pools_[source.pool]);
  flow.runs = false;
  free_.push_back(index);
}

double FluidLinks::NextEnd(double now_s) {
  if (!pools_.empty() || !changed_.empty() || !started_.empty()) Solve(now_s);
  return ends_.empty() ? std::numeric_limits<double>::infinity()
                       : ends_[0].end_s;
}

bool FluidLinks::TakeEnded(double now_s, uint32_t* transfer) {
  if (ends_.empty() || ends_[0].end_s > now_s + kSameDate * now_s) return false;
  const uint32_t flow = ends_[0].flow;
  RemoveEnd(flow);
  *transfer = flows_[flow].transfer;
  Remove(flow);
  return true;
}

// In order they are a heap.
void FluidLinks::Merge() {
  for (std::vector<End>& part : ends_of_parts_) {
    ends_.insert(ends_.end(), part.begin(), part.end());
  }
  ends_of_parts_.clear();
  std::sort(ends_.begin(), ends_.end(), [](const End& one, const End& other) {
    return one.IsBefore(other);
  });
  for (size_t place = 0; place < ends_.size(); ++place) {
    flows_[ends_[place].flow].end = static_cast<uint32_t>(place);
  }
}

// If pools slow their sources, these may change what pools find.
void FluidLinks::Solve(double now_s) {
  TellPools();
  for (int round = 0; round < kRounds; ++round) {
    if (changed_.empty() && started_.empty()) return;
    SolveChanged(now_s);
    if (!TellPools()) return;
  }
}

// What has started, what meets it or what has ended on a full link, and whom
// these change in turn. A link that was not full held nobody up; its other
// users keep their rates unless it is full now. Then they are taken in too.
void FluidLinks::SolveChanged(double now_s) {
  ++solution_;
  flows_in_.clear();
  links_in_.clear();
  loads_in_.clear();
  to_take_in_.clear();
  // What pools put on links is right to a tolerance: all of it is solved anew.
  const bool may_hold = pools_.empty();
  holds_ = may_hold;
  for (const LinkId link : to_bind_) {
    if (links_[link].binds == links_[link].Binds()) continue;
    SetBinding(link);
    if (!links_[link].binds) OpenHeldBy(link);
  }
  to_bind_.clear();
  for (const uint32_t flow : started_) {
    if (flows_[flow].runs) Open(flow);
  }
  started_.clear();
  for (const LinkId link : changed_) {
    links_[link].changed = false;
    links_[link].is_full = false;
    if (links_[link].binds) {
      TakeIn(link);
    } else {
      Settle(links_[link]);
      OpenHeldBy(link);
    }
  }
  changed_.clear();
  size_t looks = 0;
  do {
    while (!to_take_in_.empty()) {
      const LinkId link = to_take_in_.back();
      to_take_in_.pop_back();
      TakeIn(link);
    }
    Fill();
    looks += flows_in_.size();
    holds_ = may_hold && looks <= kMostLooks * flows_in_.size() + kFewLooks;
  } while (Widen());
  visits_ += static_cast<int64_t>(looks);
  for (const Solving& solving : flows_in_) {
    if (solving.spread != kNone) {
      SetMet(solving.spread, solving.most / solving.rate);
    } else if (solving.open) {
      flows_[solving.flow].held_by = solving.held_by;
      SetRate(now_s, solving.flow, solving.rate);
    }
  }
}

// Takes links in that are full now, and opens flows that the part does not
// leave as they were. False if there are none.
bool FluidLinks::Widen() {
  for (const Filling& filling : links_in_) {
    SharedLink& link = links_[filling.link];
    link.is_full = filling.left <= kFull * link.bytes_per_s;
    if (link.is_full && filling.users < link.users.size()) {
      to_take_in_.push_back(filling.link);
    }
  }
  bool opened = false;
  const size_t known = flows_in_.size();
  for (size_t index = 0; index < known; ++index) {
    const Solving& solving = flows_in_[index];
    if (solving.open || (holds_ && IsHeld(solving))) continue;
    Open(solving.flow);
    opened = true;
  }
  return opened || !to_take_in_.empty();
}

// True if its rate is right.
bool FluidLinks::IsHeld(const Solving& solving) {
  Flow& flow = flows_[solving.flow];
  if (solving.rate < flow.rate * (1 - kSameRate)) return false;
  if (flow.held_by == kNobody || links_[flow.held_by].seen != solution_ ||
      Holds(flow.held_by, flow.rate)) {
    return true;
  }
  // Another of its links may do so; a ring has many that are alike.
  for (uint32_t count = 0; count < flow.binding; ++count) {
    flow.asked = flow.asked + 1 < flow.binding ? flow.asked + 1 : 0;
    const LinkId link = binding_[flow.first_place + flow.asked].link;
    ++visits_;
    if (!Holds(link, flow.rate)) continue;
    flow.held_by = link;
    return true;
  }
  return false;
}

// True if a link is full and no user of it faster than `rate`.
bool FluidLinks::Holds(LinkId number, double rate) const {
  const SharedLink& link = links_[number];
  const double most = rate * (1 + kSameRate);
  if (link.seen == solution_) {
    const Filling& filling = links_in_[link.index];
    return filling.left <= kSameRate * link.bytes_per_s &&
           filling.fastest <= most;
  }
  return link.is_full && link.spread_per_s == 0 &&
         std::all_of(
             link.users.begin(), link.users.end(),
             [&](const User& user) { return flows_[user.flow].rate <= most; });
}

void FluidLinks::OpenHeldBy(LinkId link) {
  for (const User& user : links_[link].users) {
    if (flows_[user.flow].held_by == link) Open(user.flow);
  }
}

// Takes a flow into the part that is solved, with all of its links that bind.
void FluidLinks::Open(uint32_t index) {
  Flow& flow = flows_[index];
  if (flow.seen != solution_) {
    Enter(index);
  } else if (flows_in_[flow.solving].open) {
    return;
  }
  const int32_t pool = sources_[flow.source].pool;
  Solving& solving = flows_in_[flow.solving];
  solving.open = true;
  solving.most = pool < 0 ? flow.alone : flow.alone / pools_[pool].told_slowed;
  for (uint32_t number = 0; number < flow.binding; ++number) {
    const Binding& load = binding_[flow.first_place + number];
    const uint32_t filling = Include(load.link);
    if (!links_in_[filling].whole) AddLoad(flow, filling, load.flows);
  }
}

void FluidLinks::Enter(uint32_t index) {
  Flow& flow = flows_[index];
  flow.seen = solution_;
  flow.solving = static_cast<uint32_t>(flows_in_.size());
  // In its place at once: copied whole, it would wait for its parts.
  Solving& solving = flows_in_.emplace_back();
  solving.flow = index;
  solving.most = flow.rate;
}

void FluidLinks::AddLoad(const Flow& flow, uint32_t number, double flows) {
  Filling& filling = links_in_[number];
  filling.all_flows += flows;
  filling.had += flows * flow.rate;
  ++filling.users;
  Solving& solving = flows_in_[flow.solving];
  loads_in_.push_back({number, solving.load, flows});
  solving.load = static_cast<uint32_t>(loads_in_.size()) - 1;
}

// Takes a link into the part; of its users only those that are opened.
uint32_t FluidLinks::Include(LinkId number) {
  SharedLink& link = links_[number];
  if (link.seen == solution_) return link.index;
  link.seen = solution_;
  link.index = static_cast<uint32_t>(links_in_.size());
  links_in_.push_back({.link = number});
  if (link.is_full || link.used_per_s >= (1 - kFull) * link.bytes_per_s) {
    to_take_in_.push_back(number);
  }
  VisitSpreads(link.index);
  return link.index;
}

// Takes all users of a link into the part. Thousands of flows do not fit the
// cache: those that come next are fetched.
void FluidLinks::TakeIn(LinkId number) {
  constexpr size_t kAhead = 4;
  const uint32_t filling = Include(number);
  if (links_in_[filling].whole) return;
  const std::vector<User>& users = links_[number].users;
  for (size_t index = 0; index < users.size(); ++index) {
    if (index + 2 * kAhead < users.size()) {
      __builtin_prefetch(&flows_[users[index + 2 * kAhead].flow]);
    }
    if (index + kAhead < users.size()) {
      __builtin_prefetch(
          &binding_[flows_[users[index + kAhead].flow].first_place]);
    }
    const User& user = users[index];
    if (!holds_) {
      Open(user.flow);
      continue;
    }
    const Flow& flow = flows_[user.flow];
    if (flow.seen != solution_) {
      Enter(user.flow);
      flows_in_.back().open = false;
    } else if (flows_in_[flow.solving].open) {
      continue;
    }
    AddLoad(flow, filling, FlowsOf(user));
  }
  links_in_[filling].whole = true;
}

// A flow that is no faster alone than on any of its links has its own rate;
// those of a link that is the narrowest of every one of its users have its
// share. Both are final, since shares only grow as flows are fixed; so a round
// fixes all of them, and how many rounds there are depends on how many links
// wait for each other, not on how many there are.
void FluidLinks::Fill() {
  open_.resize(flows_in_.size());
  for (uint32_t index = 0; index < open_.size(); ++index) open_[index] = index;
  for (Filling& filling : links_in_) {
    const SharedLink& link = links_[filling.link];
    filling.left = link.bytes_per_s;
    if (filling.users < link.users.size()) {
      filling.left -= link.used_per_s - filling.had;
    }
    filling.flows = filling.all_flows;
    filling.open = filling.users + filling.spreads;
    filling.share = 0;
    filling.fastest = 0;
  }
  while (!open_.empty()) {
    for (Filling& link : links_in_) {
      if (link.open == 0) continue;
      // Not less than what others were given: that would be rounding.
      link.share = std::max(link.share, link.left / link.flows);
      link.narrowest = true;
    }
    for (const uint32_t index : open_) {
      Solving& solving = flows_in_[index];
      double rate = solving.most;
      for (uint32_t load = solving.load; load != kNone;
           load = loads_in_[load].next) {
        rate = std::min(rate, links_in_[loads_in_[load].link].share);
      }
      solving.rate = rate;
      for (uint32_t load = solving.load; load != kNone;
           load = loads_in_[load].next) {
        Filling& link = links_in_[loads_in_[load].link];
        link.narrowest &= link.share <= rate;
      }
    }
    size_t still_open = 0;
    for (const uint32_t index : open_) {
      Solving& solving = flows_in_[index];
      bool is_final = solving.rate == solving.most;
      solving.held_by = kNobody;
      for (uint32_t load = solving.load; !is_final && load != kNone;
           load = loads_in_[load].next) {
        const Filling& link = links_in_[loads_in_[load].link];
        is_final = link.narrowest && link.share == solving.rate;
        if (is_final) solving.held_by = link.link;
      }
      if (!is_final) {
        open_[still_open++] = index;
        continue;
      }
      for (uint32_t load = solving.load; load != kNone;
           load = loads_in_[load].next) {
        Filling& link = links_in_[loads_in_[load].link];
        link.left -= loads_in_[load].flows * solving.rate;
        link.flows -= loads_in_[load].flows;
        link.fastest = std::max(link.fastest, solving.rate);
        --link.open;
      }
    }
    open_.resize(still_open);
  }
}

void FluidLinks::SetRate(double now_s, uint32_t index, double rate) {
  Flow& flow = flows_[index];
  if (std::abs(rate - flow.rate) <= kSameRate * rate) return;
  flow.left = std::max(0.0, flow.left - flow.rate * (now_s - flow.since_s));
  flow.since_s = now_s;
  for (uint32_t number = 0; number < flow.binding; ++number) {
    const Binding& load = binding_[flow.first_place + number];
    links_[load.link].used_per_s += load.flows * (rate - flow.rate);
  }
  flow.rate = rate;
  SetEnd(index, now_s + flow.left / rate);
}

void FluidLinks::SetEnd(uint32_t index, double end_s) {
  const uint32_t place = flows_[index].end;
  if (place == kNone) {
    ends_.push_back({end_s, index});
    return Up(ends_.size() - 1);
  }
  const bool earlier = end_s < ends_[place].end_s;
  ends_[place].end_s = end_s;
  earlier ? Up(place) : Down(place);
}

void FluidLinks::RemoveEnd(uint32_t index) {
  const uint32_t place = flows_[index].end;
  flows_[index].end = kNone;
  const End last = ends_.back();
  ends_.pop_back();
  if (last.flow == index) return;
  const bool earlier = last.IsBefore(ends_[place]);
  Place(place, last);
  earlier ? Up(place) : Down(place);
}

void FluidLinks::Place(size_t place, const End& end) {
  ends_[place] = end;
  flows_[end.flow].end = static_cast<uint32_t>(place);
}

void FluidLinks::Up(size_t place) {
  const End moved = ends_[place];
  while (place > 0) {
    const size_t parent = (place - 1) / kFluidArity;
    if (!moved.IsBefore(ends_[parent])) break;
    Place(place, ends_[parent]);
    place = parent;
  }
  Place(place, moved);
}

void FluidLinks::Down(size_t place) {
  const End moved = ends_[place];
  for (size_t first = kFluidArity * place + 1; first < ends_.size();
       first = kFluidArity * place + 1) {
    const size_t behind = std::min(first + kFluidArity, ends_.size());
    size_t least = first;
    for (size_t child = first + 1; child < behind; ++child) {
      if (ends_[child].IsBefore(ends_[least])) least = child;
    }
    if (!ends_[least].IsBefore(moved)) break;
    Place(place, ends_[least]);
    place = least;
  }
  Place(place, moved);
}

// What is spread over very many links.

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
    loads_in_.push_back({number, kNone, flows});
    flows_in_.push_back(
        {.load = load, .most = pool.bytes_per_s, .spread = index});
    filling.all_flows += flows;
    ++filling.spreads;
  }
}

}  // namespace pipewright
