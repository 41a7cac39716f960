#include "execute/transport/nccl_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "execute/transport/message.h"
#include "sim/program/cursor.h"
#include "sim/program/network_time.h"

namespace pipewright {
namespace {

// Inputs that may come before their passes: one of each direction, and one
// that is on its way.
constexpr int kBlocksAhead = 4;

using Place = std::pair<int, int>;  // replica, rank

}  // namespace

std::vector<CommPlan> PlanComms(const Program& program) {
  std::set<std::pair<Place, Place>> links;
  std::map<int, std::set<std::vector<Place>>> groups;
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
        if (IsOneSided(op.kind)) {
          const Place self = {replica, rank};
          const Place peer = {(replica + op.peer_offset) % program.replicas,
                              op.peer};
          if (peer == self) continue;
          links.insert(op.kind == OpKind::kPull ? std::pair(peer, self)
                                                : std::pair(self, peer));
        } else if (IsCombined(program, op)) {
          std::vector<Place> members;
          for (const Member& member : RanksOf(
                   GroupMembers(program, program.groups[op.group], replica))) {
            members.emplace_back(member.replica, member.rank);
          }
          groups[op.group].insert(std::move(members));
        }
      }
    }
  }
  std::vector<CommPlan> plan;
  const auto address = [](Place place) {
    return Address{place.first, place.second};
  };
  for (const auto& [from, to] : links) {
    plan.push_back({.members = {address(from), address(to)}});
  }
  for (const auto& [group, instances] : groups) {
    for (const std::vector<Place>& places : instances) {
      CommPlan& each = plan.emplace_back(CommPlan{.group = group});
      for (const Place& place : places) each.members.push_back(address(place));
    }
  }
  return plan;
}

namespace {

// An iteration and the next, into which something may reach.
constexpr int kProvenIterations = 2;
// CUDA takes 1 to 32, and 8 unless it is told.
constexpr int kMostQueues = 32;
constexpr int kUsualQueues = 8;

// The calls of one rank.
class CallLister {
 public:
  CallLister(const Program& program, const std::vector<CommPlan>& plan,
             Address self, std::vector<CommCall>* calls)
      : program_(program),
        own_(program.OfReplica(self.replica)),
        plan_(plan),
        self_(self),
        calls_(*calls) {}

  void List() {
    OpCursor cursor(program_, self_.rank,
                    std::min(kProvenIterations, program_.iterations),
                    program_.ClassOf(self_.replica));
    for (Op op; cursor.Next(&op);) {
      if (op.kind == OpKind::kSend || op.kind == OpKind::kReceive) {
        AddTransfer(op);
      } else if (op.kind == OpKind::kPass) {
        needs_.insert(needs_.end(), received_.begin(), received_.end());
        received_.clear();
      } else if (op.side_op >= 0) {
        AddCollective(own_.ranks[self_.rank].side_ops[op.side_op]);
      }
    }
  }

 private:
  template <typename Fits>
  void Add(const Fits& fits, CommCall call) {
    const auto found = std::find_if(plan_.begin(), plan_.end(), fits);
    if (found == plan_.end()) return;
    call.comm = static_cast<int>(found - plan_.begin());
    call.needs = std::exchange(needs_, {});
    calls_.push_back(std::move(call));
  }

  void AddTransfer(const Op& op) {
    const Channel& channel = own_.channels[op.channel];
    const bool forward = channel.kind == ChannelKind::kActivation;
    if (!forward && channel.kind != ChannelKind::kGradient) return;
    const CommPlan link = {.members = {{self_.replica, channel.from_rank},
                                       {self_.replica, channel.to_rank}}};
    const bool sends = op.kind == OpKind::kSend;
    if (!sends) received_.push_back(static_cast<int>(calls_.size()));
    const Schedule& schedule = *own_.schedule;
    const int64_t iteration =
        op.iteration * static_cast<int64_t>(own_.channels.size());
    Add([&](const CommPlan& plan) { return plan == link; },
        {.sends = sends,
         .key = ((iteration + op.channel) * schedule.microbatches +
                 op.pass.microbatch()) *
                    schedule.slices +
                op.pass.slice(),
         .what = absl::StrCat(forward ? "activation " : "gradient ",
                              op.pass.microbatch()),
         .bytes = channel.bytes});
  }

  void AddCollective(const SideOp& op) {
    if (!IsCombined(program_, op)) return;
    Add(
        [&](const CommPlan& plan) {
          return plan.group == op.group &&
                 std::find(plan.members.begin(), plan.members.end(), self_) !=
                     plan.members.end();
        },
        {.what = std::string(OpKindName(op.kind)), .bytes = op.bytes});
  }

  const Program& program_;
  const DpClass& own_;
  const std::vector<CommPlan>& plan_;
  const Address self_;
  std::vector<CommCall>& calls_;
  std::vector<int> received_;  // for the next pass
  std::vector<int> needs_;     // of the next call
};

}  // namespace

CommCalls CallsOf(const Program& program) {
  const std::vector<CommPlan> plan = PlanComms(program);
  CommCalls made;
  for (const CommPlan& each : plan) {
    CommCalls::Comm& comm = made.comms.emplace_back();
    comm.link = each.group < 0;
    for (const Address& member : each.members) {
      comm.members.push_back(member.replica * program.pp() + member.rank);
    }
  }
  for (int replica = 0; replica < program.replicas; ++replica) {
    for (int rank = 0; rank < program.pp(); ++rank) {
      const Address self = {replica, rank};
      made.ranks.push_back(RankName(program, self));
      CallLister(program, plan, self, &made.calls.emplace_back()).List();
    }
  }
  return made;
}

DeviceRoom RoomOfDevice(const char* connections) {
  DeviceRoom room;
  if (connections == nullptr || !absl::SimpleAtoi(connections, &room.queues)) {
    room.queues = kUsualQueues;
  }
  room.queues = std::clamp(room.queues, 1, kMostQueues);
  return room;
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
