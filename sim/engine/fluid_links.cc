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

}  // namespace

FluidLinks::FluidLinks(const Cluster& cluster,
                       const std::vector<SourcePlan>& plans)
    : cluster_(cluster), plans_(plans), links_(cluster.links().size()) {}

void FluidLinks::Start(double now_s, int source, double bytes,
                       uint32_t transfer) {
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(flows_.size());
    flows_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Flow& flow = flows_[index];
  flow.plan = &plans_[source];
  flow.transfer = transfer;
  flow.runs = true;
  flow.left = bytes;
  flow.since_s = now_s;
  flow.rate = 0;
  const std::vector<LinkLoad>& loads = flow.plan->shared;
  flow.places.resize(loads.size());
  bool meets = false;
  for (uint32_t load = 0; load < loads.size(); ++load) {
    std::vector<User>& users = links_[loads[load].link].users;
    flow.places[load] = static_cast<uint32_t>(users.size());
    users.push_back({index, load});
    if (users.size() < 2) continue;
    meets = true;
    Change(loads[load].link);
  }
  if (!meets) alone_.push_back(index);
}

void FluidLinks::Change(LinkId link) {
  if (links_[link].changed) return;
  links_[link].changed = true;
  changed_.push_back(link);
}

void FluidLinks::Remove(uint32_t index) {
  Flow& flow = flows_[index];
  const std::vector<LinkLoad>& loads = flow.plan->shared;
  for (uint32_t load = 0; load < loads.size(); ++load) {
    std::vector<User>& users = links_[loads[load].link].users;
    const User moved = users.back();
    users[flow.places[load]] = moved;
    flows_[moved.flow].places[moved.load] = flow.places[load];
    users.pop_back();
    if (!users.empty()) Change(loads[load].link);
  }
  flow.runs = false;
  ++flow.version;
  free_.push_back(index);
}

double FluidLinks::NextEnd(double now_s) {
  if (!changed_.empty() || !alone_.empty()) Solve(now_s);
  while (!ends_.empty() &&
         flows_[ends_.top().flow].version != ends_.top().version) {
    ends_.pop();
  }
  return ends_.empty() ? std::numeric_limits<double>::infinity()
                       : ends_.top().end_s;
}

bool FluidLinks::TakeEnded(double now_s, uint32_t* transfer) {
  while (!ends_.empty() && ends_.top().end_s <= now_s + kSameDate * now_s) {
    const End end = ends_.top();
    ends_.pop();
    if (flows_[end.flow].version != end.version) continue;
    *transfer = flows_[end.flow].transfer;
    Remove(end.flow);
    return true;
  }
  return false;
}

// Everything that is connected with what has changed.
void FluidLinks::Solve(double now_s) {
  ++solution_;
  flows_in_.clear();
  links_in_.clear();
  loads_in_.clear();
  to_visit_.clear();
  for (const uint32_t flow : alone_) {
    if (flows_[flow].runs) Visit(flow);
  }
  alone_.clear();
  for (const LinkId link : changed_) {
    links_[link].changed = false;
    for (const User& user : links_[link].users) Visit(user.flow);
  }
  changed_.clear();
  while (!to_visit_.empty()) {
    const LinkId link = to_visit_.back();
    to_visit_.pop_back();
    for (const User& user : links_[link].users) Visit(user.flow);
  }
  Fill();
  for (const Solving& solving : flows_in_) {
    SetRate(now_s, solving.flow, solving.rate);
  }
}

// Takes a flow into the part that is solved, and its links that it shares.
void FluidLinks::Visit(uint32_t index) {
  Flow& flow = flows_[index];
  if (flow.seen == solution_) return;
  flow.seen = solution_;
  Solving solving = {.flow = index,
                     .first_load = static_cast<uint32_t>(loads_in_.size())};
  for (const LinkLoad& load : flow.plan->shared) {
    SharedLink& link = links_[load.link];
    if (link.users.size() < 2) continue;
    if (link.seen != solution_) {
      link.seen = solution_;
      link.index = static_cast<uint32_t>(links_in_.size());
      links_in_.push_back({.left = cluster_.links()[load.link].bytes_per_s});
      to_visit_.push_back(load.link);
    }
    Filling& filling = links_in_[link.index];
    filling.flows += load.flows;
    ++filling.open;
    loads_in_.push_back({link.index, load.flows});
  }
  solving.last_load = static_cast<uint32_t>(loads_in_.size());
  flows_in_.push_back(solving);
}

// A flow that is no faster alone than on any of its links has its own rate;
// those of a link that is the narrowest of every one of its users have its
// share. Both are final, since shares only grow as flows are fixed; so a round
// fixes all of them, and how many rounds there are depends on how many links
// wait for each other, not on how many there are.
void FluidLinks::Fill() {
  open_.resize(flows_in_.size());
  for (uint32_t index = 0; index < open_.size(); ++index) open_[index] = index;
  while (!open_.empty()) {
    for (Filling& link : links_in_) {
      if (link.open == 0) continue;
      // Not less than what others were given: that would be rounding.
      link.share = std::max(link.share, link.left / link.flows);
      link.narrowest = true;
    }
    for (const uint32_t index : open_) {
      Solving& solving = flows_in_[index];
      double rate = flows_[solving.flow].plan->bytes_per_s;
      for (uint32_t load = solving.first_load; load < solving.last_load;
           ++load) {
        rate = std::min(rate, links_in_[loads_in_[load].link].share);
      }
      solving.rate = rate;
      for (uint32_t load = solving.first_load; load < solving.last_load;
           ++load) {
        Filling& link = links_in_[loads_in_[load].link];
        link.narrowest &= link.share <= rate;
      }
    }
    size_t still_open = 0;
    for (const uint32_t index : open_) {
      const Solving& solving = flows_in_[index];
      bool is_final = solving.rate == flows_[solving.flow].plan->bytes_per_s;
      for (uint32_t load = solving.first_load;
           !is_final && load < solving.last_load; ++load) {
        const Filling& link = links_in_[loads_in_[load].link];
        is_final = link.narrowest && link.share == solving.rate;
      }
      if (!is_final) {
        open_[still_open++] = index;
        continue;
      }
      for (uint32_t load = solving.first_load; load < solving.last_load;
           ++load) {
        Filling& link = links_in_[loads_in_[load].link];
        link.left -= loads_in_[load].flows * solving.rate;
        link.flows -= loads_in_[load].flows;
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
  flow.rate = rate;
  ++flow.version;
  ends_.push({now_s + flow.left / rate, index, flow.version});
}

}  // namespace pipewright
