// VerifyProgram: what must hold of every Program, whoever made it.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/status.h"
#include "sim/program/cursor.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// What the member `rank` of a group does at each meeting, in order.
struct MeetingKind {
  OpKind kind;
  double bytes;
  int first_iteration;
  bool false_start = false;  // where they are
  friend bool operator==(const MeetingKind&, const MeetingKind&) = default;
};

std::vector<MeetingKind> MeetingsOf(const Program& program, int dp_class,
                                    int number, int group) {
  const RankProgram& rank = program.dp_class(dp_class).ranks[number];
  std::vector<MeetingKind> meetings;
  for (const Attachment& attachment : rank.attachments) {
    const SideOp& op = rank.side_ops[attachment.side_op];
    if (!IsCollective(op.kind) || op.group != group) continue;
    meetings.push_back({op.kind, op.bytes, op.first_iteration});
  }
  return meetings;
}

// The same with hooks and false starts: operation by operation, up to the end
// of an iteration that leaves nothing out.
std::vector<MeetingKind> MeetingsSpelledOut(const Program& program,
                                            int dp_class, int number,
                                            int group) {
  const DpClass& own = program.dp_class(dp_class);
  int full = program.settled();
  for (const RankProgram& rank : own.ranks) {
    for (const SideOp& op : rank.side_ops) {
      full = std::max(full, op.first_iteration);
    }
  }
  std::vector<MeetingKind> meetings;
  OpCursor cursor(program, number, full + 1, dp_class);
  for (Op op; cursor.Next(&op);) {
    if (op.side_op < 0) continue;
    const SideOp& side_op = own.ranks[number].side_ops[op.side_op];
    if (!IsCollective(side_op.kind) || side_op.group != group) continue;
    meetings.push_back({side_op.kind, side_op.bytes, 0, op.false_start});
  }
  return meetings;
}

bool IsMeetingOf(const SideOp& op, int group) {
  return IsCollective(op.kind) && op.group == group;
}

bool HooksMeet(const RankProgram& rank, int group) {
  return std::any_of(
      rank.hooks.begin(), rank.hooks.end(), [&](const LaneHook& hook) {
        return std::any_of(hook.side_ops.begin(), hook.side_ops.end(),
                           [&](int32_t op) {
                             return op >= 0 && op < std::ssize(rank.side_ops) &&
                                    IsMeetingOf(rank.side_ops[op], group);
                           });
      });
}

// Attachments alone do not tell how often a rank meets.
bool SpellsOut(const Program& program, int group) {
  if (!program.false_starts.empty()) return true;
  for (int index = 0; index < program.num_classes(); ++index) {
    for (const RankProgram& rank : program.dp_class(index).ranks) {
      if (HooksMeet(rank, group)) return true;
    }
  }
  return false;
}

std::vector<MeetingKind> Meetings(const Program& program, bool spell_out,
                                  int dp_class, int rank, int group) {
  return (spell_out ? MeetingsSpelledOut : MeetingsOf)(program, dp_class, rank,
                                                       group);
}

bool NamesGroup(const RankProgram& rank, int group) {
  return std::any_of(rank.side_ops.begin(), rank.side_ops.end(),
                     [&](const SideOp& op) { return IsMeetingOf(op, group); });
}

// The n-th operation of a member belongs with the n-th ones of the others: all
// have to be of one kind and size. Others have none.
absl::Status VerifyGroup(const Program& program, bool spells_out, int dp_class,
                         int group) {
  const DpClass& own = program.dp_class(dp_class);
  const std::vector<int>& members = program.groups[group].ranks;
  // A member alone agrees with itself.
  const bool spell_out = members.size() > 1 && spells_out;
  for (int rank = 0; rank < program.pp(); ++rank) {
    const bool member =
        std::find(members.begin(), members.end(), rank) != members.end();
    if (member ? Meetings(program, spell_out, dp_class, rank, group) !=
                     Meetings(program, spell_out, dp_class, members[0], group)
               : NamesGroup(own.ranks[rank], group)) {
      return absl::InternalError(absl::StrCat("program: the members of group ",
                                              group, " do not meet rank ", rank,
                                              " alike"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyMeetingsOfClasses(const Program& program) {
  if (program.num_classes() == 1) return absl::OkStatus();
  for (size_t index = 0; index < program.groups.size(); ++index) {
    const Group& group = program.groups[index];
    const auto number = static_cast<int>(index);
    if (group.span == Group::Span::kRanks) continue;
    // The ranks of one class meet alike: one of them speaks for all.
    const int rank = group.ranks.empty() ? -1 : group.ranks[0];
    if (rank < 0) continue;
    const bool spell_out = SpellsOut(program, number);
    const std::vector<MeetingKind> first =
        Meetings(program, spell_out, 0, rank, number);
    for (int other = 1; other < program.num_classes(); ++other) {
      const std::vector<MeetingKind> theirs =
          Meetings(program, spell_out, other, rank, number);
      if (theirs == first) continue;
      const std::vector<MeetingKind>& longer =
          first.size() >= theirs.size() ? first : theirs;
      const auto [mine, yours] = std::mismatch(first.begin(), first.end(),
                                               theirs.begin(), theirs.end());
      const size_t at =
          std::min<size_t>(mine - first.begin(), longer.size() - 1);
      return absl::FailedPreconditionError(absl::StrCat(
          "deadlock: ", "rank ", rank, " meets the other replicas ",
          first.size(), " times in class 0 and ", theirs.size(),
          " times in class ", other, "; meeting ", at, " (",
          OpKindName(longer[at].kind),
          ") is not the same in both, so replicas would wait for each other "
          "forever or move other bytes"));
    }
  }
  return absl::OkStatus();
}

namespace {

// The members of each group meet equally often and alike: the ranks of one
// replica, and where the group spans replicas those of all classes too; who is
// no member never comes. kInternal.
absl::Status VerifyGroups(const Program& program) {
  for (size_t index = 0; index < program.groups.size(); ++index) {
    const auto group = static_cast<int>(index);
    const int part = program.groups[index].part;
    if (part < 0 || (part > 0 && program.replicas % part != 0)) {
      return absl::InternalError(absl::StrCat(
          "program: the parts of group ", index, " do not cover the replicas"));
    }
    for (const int rank : program.groups[index].ranks) {
      if (rank < 0 || rank >= program.pp()) {
        return absl::InternalError(absl::StrCat(
            "program: rank ", rank, ", group ", index, " is wrong"));
      }
    }
    const bool spells_out = SpellsOut(program, group);
    for (int dp_class = 0; dp_class < program.num_classes(); ++dp_class) {
      PW_RETURN_IF_ERROR(VerifyGroup(program, spells_out, dp_class, group));
    }
  }
  const absl::Status classes = VerifyMeetingsOfClasses(program);
  return classes.ok() ? classes
                      : absl::InternalError(
                            absl::StrCat("program: ", classes.message()));
}

// Counts of the side operations and lanes that a channel is the output and the
// input of.
struct Ends {
  int producers = 0;
  int consumers = 0;
  int first_produced = 0;
  int first_consumed = 0;
  int undone = 0;  // those in iterations that are undone
  // Tokens of passes, or of operations that come with them, in one iteration.
  int64_t sent = 0;
  int64_t received = 0;
};

absl::Status Wrong(absl::string_view what, int rank, size_t index) {
  return absl::InternalError(absl::StrFormat("program: rank %d, %s %d is wrong",
                                             rank, std::string(what),
                                             static_cast<int>(index)));
}

bool IsPassChannel(const Channel& channel) {
  return channel.kind == ChannelKind::kActivation ||
         channel.kind == ChannelKind::kGradient;
}

// Factors of one lane: of every microbatch, and none of them below zero.
bool FactorsOk(const DpClass& own, const std::vector<double>& factors) {
  return factors.size() ==
             static_cast<size_t>(own.schedule->microbatches_per_direction()) &&
         std::all_of(factors.begin(), factors.end(),
                     [](double factor) { return factor >= 0; });
}

absl::Status VerifyLanes(const DpClass& own, int rank) {
  const std::vector<Lane>& lanes = own.ranks[rank].lanes;
  const auto channels = static_cast<int32_t>(own.channels.size());
  for (size_t index = 0; index < lanes.size(); ++index) {
    const Lane& lane = lanes[index];
    const bool input_ok =
        lane.input < 0 ||
        (lane.input < channels && IsPassChannel(own.channels[lane.input]) &&
         own.channels[lane.input].to_rank == rank);
    const bool output_ok =
        lane.output < 0 ||
        (lane.output < channels && IsPassChannel(own.channels[lane.output]) &&
         own.channels[lane.output].from_rank == rank);
    const bool factors_ok =
        lane.factors < static_cast<int>(own.lane_factors.size()) &&
        lane.exchanges < static_cast<int>(own.exchanges.size()) &&
        (lane.factors < 0 || FactorsOk(own, own.lane_factors[lane.factors]));
    if (!(lane.seconds >= 0) || !input_ok || !output_ok || !factors_ok) {
      return Wrong("lane", rank, index);
    }
  }
  return absl::OkStatus();
}

// How often each side operation of a rank that hooks bring comes, in one
// iteration; those whose count matters come with every pass.
std::vector<int64_t> TimesHooked(const RankProgram& rank) {
  std::vector<int64_t> times(rank.side_ops.size(), 1);
  for (const LaneHook& hook : rank.hooks) {
    for (const int32_t op : hook.side_ops) {
      if (op >= 0) times[op] = 0;
    }
    for (size_t lane = 0; lane < hook.side_ops.size(); ++lane) {
      const int32_t op = hook.side_ops[lane];
      if (op >= 0) times[op] += rank.lanes[lane].passes;
    }
  }
  return times;
}

// Notes the side operations of a good hook as attached.
bool VerifyHook(const DpClass& own, int rank, const LaneHook& hook,
                size_t false_starts, std::vector<int>* attached) {
  const RankProgram& rank_program = own.ranks[rank];
  const std::vector<SideOp>& ops = rank_program.side_ops;
  const bool counts = hook.every != 1;
  if (hook.every < 1 || (counts && rank_program.later_start > 0) ||
      (counts && hook.fires == LaneHook::Fires::kEveryRun) || hook.window < 0 ||
      hook.side_ops.size() != rank_program.lanes.size()) {
    return false;
  }
  const bool keeps = hook.fires == LaneHook::Fires::kUnlessKept;
  const bool before = hook.place == LaneHook::Place::kBefore;
  if ((counts && keeps) || (keeps && !before) ||
      (keeps ? hook.keeps.size() != hook.side_ops.size()
             : !hook.keeps.empty()) ||
      (!hook.in_time.empty() &&
       (!before || hook.in_time.size() != hook.side_ops.size()))) {
    return false;
  }
  // Every pass of its lanes fires, and no start is a false one.
  const bool each =
      !counts && false_starts == 0 && hook.fires == LaneHook::Fires::kEveryPass;
  std::vector<int32_t> mine;
  bool fires = false;
  for (size_t lane = 0; lane < hook.side_ops.size(); ++lane) {
    const int32_t index = hook.side_ops[lane];
    if (index < 0) continue;
    const auto kind = Pass::KindOf(lane);
    if (index >= static_cast<int32_t>(ops.size()) || !IsComputePass(kind)) {
      return false;
    }
    mine.push_back(index);
    fires |= rank_program.lanes[lane].passes > 0;
  }
  std::sort(mine.begin(), mine.end());
  mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  for (const int32_t index : mine) {
    const SideOp& op = ops[index];
    ++(*attached)[index];
    const bool channels = !op.inputs.empty() || !op.outputs.empty();
    if (op.stream != ops[mine[0]].stream || (channels && !each) ||
        op.first_iteration != 0 || op.unless_fails ||
        op.starts != SideOp::Starts::kEvery ||
        (op.stream == Stream::kCompute && hook.window != 0)) {
      return false;
    }
  }
  const auto channels = static_cast<int32_t>(own.channels.size());
  return hook.output < 0 ||
         (fires && hook.output < channels &&
          own.channels[hook.output].kind == ChannelKind::kEvent &&
          own.channels[hook.output].from_rank == rank);
}

// Peers are other replicas, each of them once.
bool PlanOk(const Program& program, const PeerPlan& plan) {
  if (plan.node_size < 1 || plan.nodes < 0 ||
      program.replicas % plan.node_size != 0) {
    return false;
  }
  std::vector<char> met(program.replicas, 0);
  for (const PeerPlan::Step& step : plan.steps) {
    if (step.peers.empty()) return false;
    for (const PeerPlan::Peer& peer : step.peers) {
      if (peer.node < 0 || peer.place < 0) return false;
      const int replica = plan.ReplicaOf(peer, 0, program.replicas);
      if (replica == 0 || met[replica] != 0) return false;
      met[replica] = 1;
    }
  }
  return true;
}

// `known`: plans that are; all layers of a rank have the same few.
bool PeersOk(const Program& program, const SideOp& op, int rank,
             std::vector<const PeerPlan*>* known) {
  if (op.peers == nullptr) return true;
  if (op.peer != rank || !RunsInOrder(op.stream)) return false;
  if (std::count(known->begin(), known->end(), op.peers.get()) > 0) return true;
  if (!PlanOk(program, *op.peers)) return false;
  known->push_back(op.peers.get());
  return true;
}

absl::Status VerifySideOps(const Program& program, const DpClass& own, int rank,
                           std::vector<Ends>* ends) {
  const RankProgram& rank_program = own.ranks[rank];
  std::vector<int> attached(rank_program.side_ops.size(), 0);
  // What comes once must not stand where only a first iteration runs.
  int64_t last_position = rank_program.later_start;
  for (size_t index = 0; index < rank_program.attachments.size(); ++index) {
    const Attachment& attachment = rank_program.attachments[index];
    if (attachment.position < last_position ||
        attachment.position >
            static_cast<int64_t>(rank_program.order->size()) ||
        attachment.side_op < 0 ||
        attachment.side_op >= static_cast<int32_t>(attached.size())) {
      return Wrong("attachment", rank, index);
    }
    // A block (X&Y) is one operation: nothing stands inside it.
    if (attachment.position > 0 &&
        (*rank_program.order)[attachment.position - 1].joint_with_next()) {
      return Wrong("attachment", rank, index);
    }
    last_position = attachment.position;
    ++attached[attachment.side_op];
  }
  for (size_t index = 0; index < rank_program.hooks.size(); ++index) {
    if (!VerifyHook(own, rank, rank_program.hooks[index],
                    program.false_starts.size(), &attached)) {
      return Wrong("hook", rank, index);
    }
    const int32_t output = rank_program.hooks[index].output;
    if (output < 0) continue;
    ++(*ends)[output].producers;
    ++(*ends)[output].sent;
  }
  const std::vector<int64_t> times = TimesHooked(rank_program);
  std::vector<const PeerPlan*> known_peers;
  for (size_t index = 0; index < rank_program.side_ops.size(); ++index) {
    const SideOp& op = rank_program.side_ops[index];
    const bool group_ok =
        !IsCollective(op.kind) ||
        (op.group >= 0 && op.group < static_cast<int>(program.groups.size()));
    const bool peer_ok =
        !IsOneSided(op.kind) ||
        (op.peer >= 0 && op.peer < program.pp() && op.peer_offset >= 0 &&
         PeersOk(program, op, rank, &known_peers));
    const bool stream_ok = RunsInOrder(op.stream) || UsesHost(op.kind);
    // Owners, as AddSeconds (network_time.h) says.
    const bool adds = op.kind == OpKind::kPush && op.peers != nullptr;
    const bool host_ok = UsesHost(op.kind)
                             ? op.stream != Stream::kCompute &&
                                   op.parameters >= 0 &&
                                   op.host_bytes_each >= 0 && op.most_per_s >= 0
                         : adds ? op.parameters >= 0 && op.most_per_s >= 0 &&
                                      op.host_bytes_each == 0
                                : op.parameters == 0 && op.host_bytes_each == 0;
    if (attached[index] != 1 || !group_ok || !peer_ok || !host_ok ||
        !stream_ok || !(op.seconds >= 0) || !(op.bytes >= 0)) {
      return Wrong("side operation", rank, index);
    }
    for (const int32_t channel : op.inputs) {
      if (channel < 0 || channel >= static_cast<int32_t>(ends->size()) ||
          own.channels[channel].to_rank != rank) {
        return Wrong("input of side operation", rank, index);
      }
      ++(*ends)[channel].consumers;
      (*ends)[channel].received += times[index];
      (*ends)[channel].undone += op.if_undone ? 1 : 0;
      (*ends)[channel].first_consumed = op.first_iteration;
    }
    for (const int32_t channel : op.outputs) {
      if (channel < 0 || channel >= static_cast<int32_t>(ends->size()) ||
          own.channels[channel].from_rank != rank) {
        return Wrong("output of side operation", rank, index);
      }
      ++(*ends)[channel].producers;
      (*ends)[channel].sent += times[index];
      (*ends)[channel].undone += op.if_undone ? 1 : 0;
      (*ends)[channel].first_produced = op.first_iteration;
    }
  }
  return absl::OkStatus();
}

// What an iteration that begins twice puts into a channel, less what it takes
// out: of passes in the false start alone, of side operations in both.
absl::Status VerifyFalseStart(const Program& program, const DpClass& own) {
  std::vector<int64_t> left(own.channels.size(), 0);
  const Start begins[] = {{.iteration = program.settled(), .is_false = true},
                          {.iteration = program.settled(), .again = true}};
  for (int number = 0; number < program.pp(); ++number) {
    const RankProgram& rank = own.ranks[number];
    if (rank.false_start_end < 0 ||
        rank.false_start_end > static_cast<int>(rank.attachments.size())) {
      return Wrong("false start", number, 0);
    }
    for (int64_t index = 0; index < rank.EndOf(begins[0]); ++index) {
      const Lane& lane = rank.lanes[(*rank.order)[index].lane()];
      if (lane.output >= 0) ++left[lane.output];
      if (lane.input >= 0) --left[lane.input];
    }
    for (size_t index = 0; index < rank.dropped.size(); ++index) {
      const int32_t channel = rank.dropped[index].channel;
      if (channel < 0 || channel >= static_cast<int32_t>(left.size()) ||
          own.channels[channel].to_rank != number) {
        return Wrong("dropped transfer", number, index);
      }
      --left[channel];
    }
    for (size_t index = 0; index < rank.attachments.size(); ++index) {
      const SideOp& op = rank.side_ops[rank.attachments[index].side_op];
      int times = begins[1].Includes(op) ? 1 : 0;
      if (static_cast<int>(index) < rank.false_start_end) {
        times += begins[0].Includes(op) ? 1 : 0;
      }
      for (const int32_t channel : op.outputs) left[channel] += times;
      for (const int32_t channel : op.inputs) left[channel] -= times;
    }
    for (const LaneHook& hook : rank.hooks) {
      if (hook.output >= 0) ++left[hook.output];
    }
  }
  for (size_t channel = 0; channel < left.size(); ++channel) {
    if (left[channel] == 0) continue;
    return absl::InternalError(absl::StrCat(
        "program: channel ", channel, " does not pair up in a false start"));
  }
  return absl::OkStatus();
}

absl::Status VerifyChannels(const DpClass& own, const std::vector<Ends>& ends) {
  for (size_t index = 0; index < ends.size(); ++index) {
    const Channel& channel = own.channels[index];
    const Ends& end = ends[index];
    const bool side = !IsPassChannel(channel);
    const bool paired = end.producers == 1 && end.consumers == 1 &&
                        end.undone % 2 == 0 &&
                        end.first_consumed - end.first_produced <= 1 &&
                        end.first_consumed >= end.first_produced;
    const bool unused = end.producers == 0 && end.consumers == 0;
    const bool ranks_ok = channel.kind != ChannelKind::kEvent ||
                          channel.from_rank == channel.to_rank;
    const bool counts_ok = end.sent == end.received;
    if ((side ? !paired : !unused) || !ranks_ok || !counts_ok ||
        !(channel.bytes >= 0)) {
      return absl::InternalError(
          absl::StrCat("program: channel ", index, " does not pair up"));
    }
  }
  return absl::OkStatus();
}

absl::Status VerifyClass(const Program& program, const DpClass& own) {
  if (own.ranks.size() != program.ranks.size() || own.schedule == nullptr ||
      !(own.gradient_weight >= 0)) {
    return absl::InternalError("program: a class of other ranks");
  }
  std::vector<Ends> ends(own.channels.size());
  for (int rank = 0; rank < program.pp(); ++rank) {
    const RankProgram& rank_program = own.ranks[rank];
    if (rank_program.order == nullptr) return Wrong("order", rank, 0);
    const auto size = static_cast<int64_t>(rank_program.order->size());
    const bool overlaps = rank_program.later_start > 0;
    // A transfer that holds its rank would outlive the iteration.
    if (rank_program.later_start < 0 || rank_program.later_start > size ||
        (overlaps && program.wait_rule != WaitRule::kBuffered)) {
      return Wrong("later start", rank, 0);
    }
    PW_RETURN_IF_ERROR(VerifyLanes(own, rank));
    PW_RETURN_IF_ERROR(VerifySideOps(program, own, rank, &ends));
    int64_t posts = 0;
    for (const Lane& lane : rank_program.lanes) {
      if (lane.input >= 0) posts += lane.passes;
      if (lane.output >= 0) posts += lane.passes;
      if (lane.output >= 0) ends[lane.output].sent += lane.passes;
      if (lane.input >= 0) ends[lane.input].received += lane.passes;
    }
    // Else a pass would begin without its input.
    const auto posted = std::ssize(rank_program.step_posts);
    const bool stepped =
        program.wait_rule == WaitRule::kStepped ||
        (program.wait_rule == WaitRule::kBatched && posted > 0);
    if (posted != (stepped ? posts : 0)) {
      return Wrong("time steps", rank, 0);
    }
  }
  PW_RETURN_IF_ERROR(VerifyChannels(own, ends));
  return program.false_starts.empty() ? absl::OkStatus()
                                      : VerifyFalseStart(program, own);
}

// Every replica is of a class that is there.
absl::Status VerifyClasses(const Program& program) {
  const std::vector<int>& of = program.class_of_replica;
  const auto classes = static_cast<int>(program.num_classes());
  const bool all_named =
      of.empty() ? classes == 1
                 : of.size() == static_cast<size_t>(program.replicas);
  std::vector<bool> seen(classes, of.empty());
  for (const int index : of) {
    if (index < 0 || index >= classes) {
      return absl::InternalError("program: a replica of no class");
    }
    seen[index] = true;
  }
  if (!all_named || std::find(seen.begin(), seen.end(), false) != seen.end()) {
    return absl::InternalError("program: a class of no replica");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyProgram(const Program& program) {
  if (program.replicas < 1 || program.iterations < 1 || program.pp() < 1) {
    return absl::InternalError("program: no ranks, replicas or iterations");
  }
  PW_RETURN_IF_ERROR(VerifyClasses(program));
  for (const std::vector<int>* list :
       {&program.false_starts, &program.undone_steps}) {
    if (std::adjacent_find(list->begin(), list->end(),
                           std::greater_equal<>()) != list->end()) {
      return absl::InternalError("program: false starts out of order");
    }
  }
  if (!program.false_starts.empty() && program.false_starts[0] < 1) {
    return absl::InternalError("program: false starts out of order");
  }
  for (int index = 0; index < program.num_classes(); ++index) {
    PW_RETURN_IF_ERROR(VerifyClass(program, program.dp_class(index)));
  }
  return VerifyGroups(program);
}

}  // namespace pipewright
