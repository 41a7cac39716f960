#include "execute/transport/nccl_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "execute/transport/message.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Inputs that may come before their passes: one of each direction, and one
// that is on its way.
constexpr int kBlocksAhead = 4;

}  // namespace

std::vector<CommPlan> PlanComms(const Program& program) {
  std::set<std::pair<Address, Address>> links;
  std::map<int, std::set<std::vector<Address>>> groups;
  for (int replica = 0; replica < program.replicas; ++replica) {
    for (const Channel& channel : program.channels) {
      if (channel.kind != ChannelKind::kActivation &&
          channel.kind != ChannelKind::kGradient) {
        continue;
      }
      if (channel.from_rank == channel.to_rank) continue;
      links.insert({{replica, channel.from_rank}, {replica, channel.to_rank}});
    }
    for (int rank = 0; rank < program.pp(); ++rank) {
      for (const SideOp& op : program.ranks[rank].side_ops) {
        if (!IsCombined(program, op)) continue;
        groups[op.group].insert(GroupRanks(program, op.group, replica));
      }
    }
  }
  std::vector<CommPlan> plan;
  for (const auto& [from, to] : links) plan.push_back({.members = {from, to}});
  for (const auto& [group, instances] : groups) {
    for (const std::vector<Address>& members : instances) {
      plan.push_back({.members = members, .group = group});
    }
  }
  return plan;
}

int BlocksHeld(const Program& program, int rank) {
  int held = 0;
  int most = 0;
  for (const Pass pass : *program.ranks[rank].order) {
    switch (pass.kind()) {
      case PassKind::kForward:
        most = std::max(most, ++held);
        break;
      case PassKind::kBackwardInput:
      case PassKind::kBackwardFull:
        --held;
        break;
      default:
        break;
    }
  }
  return most + kBlocksAhead;
}

}  // namespace pipewright
