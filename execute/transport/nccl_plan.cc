#include "execute/transport/nccl_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "execute/transport/message.h"
#include "sim/base/check.h"
#include "sim/program/cursor.h"
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

namespace {

// An iteration and the next, into which something may reach.
constexpr int kProvenIterations = 2;
// CUDA's, unless it is told.
constexpr int kUsualQueues = 8;

// The calls of one rank, as its passes and collectives come.
class CallLister {
 public:
  // Messages by communicator and key.
  using Messages = std::map<std::pair<int, int64_t>, CommCall>;

  CallLister(const Program& program, const std::vector<CommPlan>& plan,
             Address self)
      : program_(program),
        own_(program.OfReplica(self.replica)),
        plan_(plan),
        self_(self) {}

  void List() {
    OpCursor cursor(program_, self_.rank,
                    std::min(kProvenIterations, program_.iterations),
                    program_.ClassOf(self_.replica));
    for (Op op; cursor.Next(&op);) {
      if (op.kind == OpKind::kSend || op.kind == OpKind::kReceive ||
          op.kind == OpKind::kDrop) {
        AddTransfer(op);
      } else if (op.kind == OpKind::kPass) {
        needed_.insert(needed_.end(), received_.begin(), received_.end());
        received_.clear();
      } else if (op.side_op >= 0) {
        AddCollective(own_.ranks[self_.rank].side_ops[op.side_op]);
      }
    }
  }

  std::vector<CommCall> calls;  // its sends and collectives
  // [call] which messages passes in front of it need.
  std::vector<std::vector<std::pair<int, int64_t>>> needs;
  Messages receives;

 private:
  template <typename Fits>
  int CommOf(const Fits& fits) const {
    const auto found = std::find_if(plan_.begin(), plan_.end(), fits);
    PW_CHECK(found != plan_.end());
    return static_cast<int>(found - plan_.begin());
  }

  void Issue(CommCall call) {
    calls.push_back(std::move(call));
    needs.push_back(std::exchange(needed_, {}));
  }

  void AddTransfer(const Op& op) {
    const Channel& channel = own_.channels[op.channel];
    const bool forward = channel.kind == ChannelKind::kActivation;
    if (!forward && channel.kind != ChannelKind::kGradient) return;
    if (channel.from_rank == channel.to_rank) return;
    const CommPlan link = {.members = {{self_.replica, channel.from_rank},
                                       {self_.replica, channel.to_rank}}};
    const Schedule& schedule = *own_.schedule;
    // The n-th of a message is the n-th of the other side.
    const int64_t message =
        (static_cast<int64_t>(op.channel) * schedule.microbatches +
         op.pass.microbatch()) *
            schedule.slices +
        op.pass.slice();
    const bool sends = op.kind == OpKind::kSend;
    const int64_t number = counts_[{sends, message}]++;
    CommCall call = {
        .comm = CommOf([&](const CommPlan& plan) { return plan == link; }),
        .sends = sends,
        .key = number * static_cast<int64_t>(own_.channels.size()) *
                   schedule.microbatches * schedule.slices +
               message,
        .what = absl::StrCat(forward ? "activation " : "gradient ",
                             op.pass.microbatch()),
        .bytes = channel.bytes};
    if (sends) return Issue(std::move(call));
    const std::pair<int, int64_t> received = {call.comm, call.key};
    if (op.kind == OpKind::kReceive) received_.push_back(received);
    receives.emplace(received, std::move(call));
  }

  void AddCollective(const SideOp& op) {
    if (!IsCombined(program_, op)) return;
    const auto fits = [&](const CommPlan& plan) {
      return plan.group == op.group &&
             std::find(plan.members.begin(), plan.members.end(), self_) !=
                 plan.members.end();
    };
    Issue({.comm = CommOf(fits),
           .what = std::string(OpKindName(op.kind)),
           .bytes = op.bytes});
  }

  const Program& program_;
  const DpClass& own_;
  const std::vector<CommPlan>& plan_;
  const Address self_;
  std::map<std::pair<bool, int64_t>, int64_t> counts_;
  std::vector<std::pair<int, int64_t>> received_;  // for the next pass
  std::vector<std::pair<int, int64_t>> needed_;    // of the next call
};

}  // namespace

CommCalls CallsOf(const Program& program) {
  const std::vector<CommPlan> plan = PlanComms(program);
  CommCalls made;
  std::vector<CallLister> ranks;
  for (int replica = 0; replica < program.replicas; ++replica) {
    for (int rank = 0; rank < program.pp(); ++rank) {
      const Address self = {replica, rank};
      made.issuers.push_back(RankName(program, self));
      ranks.emplace_back(program, plan, self).List();
      made.calls.push_back(ranks.back().calls);
    }
  }
  std::vector<int> comms_of(ranks.size(), 0);
  // The thread that receives on a link takes what is announced: the order is
  // the sender's.
  std::map<std::pair<int, int64_t>, CallPlace> places;
  for (const CommPlan& each : plan) {
    CommCalls::Comm& comm = made.comms.emplace_back();
    comm.link = each.group < 0;
    const int number = static_cast<int>(made.comms.size()) - 1;
    for (const Address& member : each.members) {
      comm.members.push_back(member.replica * program.pp() + member.rank);
      ++comms_of[comm.members.back()];
    }
    if (!comm.link) continue;
    const int issuer = static_cast<int>(made.calls.size());
    CallLister::Messages& receives = ranks[comm.members[1]].receives;
    std::vector<CommCall> arriving;
    const auto take = [&](CallLister::Messages::iterator found) {
      places[found->first] = {issuer, static_cast<int>(arriving.size())};
      arriving.push_back(std::move(found->second));
      receives.erase(found);
    };
    for (const CommCall& sent : ranks[comm.members[0]].calls) {
      const auto found = receives.find({number, sent.key});
      if (sent.comm == number && found != receives.end()) take(found);
    }
    // Those that nobody sends.
    for (auto left = receives.lower_bound({number, 0});
         left != receives.end() && left->first.first == number;
         left = receives.lower_bound({number, 0})) {
      take(left);
    }
    made.issuers.push_back(made.issuers[comm.members[1]]);
    made.calls.push_back(std::move(arriving));
    comm.members[1] = issuer;
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (size_t call = 0; call < ranks[rank].needs.size(); ++call) {
      for (const auto& message : ranks[rank].needs[call]) {
        made.calls[rank][call].needs.push_back(places.at(message));
      }
    }
  }
  made.most_comms = *std::max_element(comms_of.begin(), comms_of.end());
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
