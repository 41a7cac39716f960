// VerifyProgram: what must hold of every Program, whoever made it.
#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/status.h"
#include "sim/program/cursor.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Of which side operations and lanes a channel is the output and the input.
struct Ends {
  int producers = 0;
  int consumers = 0;
  int first_produced = 0;
  int first_consumed = 0;
  int undone = 0;    // of those, in iterations that are undone
  int64_t sent = 0;  // tokens of passes in one iteration
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

absl::Status VerifyLanes(const Program& program, int rank) {
  const std::vector<Lane>& lanes = program.ranks[rank].lanes;
  const auto channels = static_cast<int32_t>(program.channels.size());
  for (size_t index = 0; index < lanes.size(); ++index) {
    const Lane& lane = lanes[index];
    const bool input_ok =
        lane.input < 0 ||
        (lane.input < channels && IsPassChannel(program.channels[lane.input]) &&
         program.channels[lane.input].to_rank == rank);
    const bool output_ok =
        lane.output < 0 || (lane.output < channels &&
                            IsPassChannel(program.channels[lane.output]) &&
                            program.channels[lane.output].from_rank == rank);
    if (!(lane.seconds >= 0) || !input_ok || !output_ok) {
      return Wrong("lane", rank, index);
    }
  }
  return absl::OkStatus();
}

// Notes the side operations of a good hook as attached.
bool VerifyHook(const Program& program, int rank, const LaneHook& hook,
                std::vector<int>* attached) {
  const RankProgram& rank_program = program.ranks[rank];
  const std::vector<SideOp>& ops = rank_program.side_ops;
  const bool counts = hook.every != 1;
  if (hook.every < 1 || (counts && rank_program.later_start > 0) ||
      (counts && hook.fires == LaneHook::Fires::kEveryRun) || hook.window < 0 ||
      hook.side_ops.size() != rank_program.lanes.size()) {
    return false;
  }
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
    if (op.stream != ops[mine[0]].stream || !op.inputs.empty() ||
        !op.outputs.empty() || op.first_iteration != 0 || op.unless_fails ||
        op.starts != SideOp::Starts::kEvery ||
        (op.stream == Stream::kCompute && hook.window != 0)) {
      return false;
    }
  }
  const auto channels = static_cast<int32_t>(program.channels.size());
  return hook.output < 0 ||
         (fires && hook.output < channels &&
          program.channels[hook.output].kind == ChannelKind::kEvent &&
          program.channels[hook.output].from_rank == rank);
}

absl::Status VerifySideOps(const Program& program, int rank,
                           std::vector<Ends>* ends) {
  const RankProgram& rank_program = program.ranks[rank];
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
    if (!VerifyHook(program, rank, rank_program.hooks[index], &attached)) {
      return Wrong("hook", rank, index);
    }
    const int32_t output = rank_program.hooks[index].output;
    if (output >= 0) ++(*ends)[output].producers;
  }
  for (size_t index = 0; index < rank_program.side_ops.size(); ++index) {
    const SideOp& op = rank_program.side_ops[index];
    const bool group_ok =
        !IsCollective(op.kind) ||
        (op.group >= 0 && op.group < static_cast<int>(program.groups.size()));
    const bool peer_ok =
        !IsOneSided(op.kind) ||
        (op.peer >= 0 && op.peer < program.pp() && op.peer_offset >= 0);
    const bool stream_ok = RunsInOrder(op.stream) || UsesHost(op.kind);
    const bool host_ok = UsesHost(op.kind)
                             ? op.stream != Stream::kCompute &&
                                   op.parameters >= 0 &&
                                   op.host_bytes_each >= 0 && op.most_per_s >= 0
                             : op.parameters == 0 && op.host_bytes_each == 0;
    if (attached[index] != 1 || !group_ok || !peer_ok || !host_ok ||
        !stream_ok || !(op.seconds >= 0) || !(op.bytes >= 0)) {
      return Wrong("side operation", rank, index);
    }
    for (const int32_t channel : op.inputs) {
      if (channel < 0 || channel >= static_cast<int32_t>(ends->size()) ||
          program.channels[channel].to_rank != rank) {
        return Wrong("input of side operation", rank, index);
      }
      ++(*ends)[channel].consumers;
      (*ends)[channel].undone += op.if_undone ? 1 : 0;
      (*ends)[channel].first_consumed = op.first_iteration;
    }
    for (const int32_t channel : op.outputs) {
      if (channel < 0 || channel >= static_cast<int32_t>(ends->size()) ||
          program.channels[channel].from_rank != rank) {
        return Wrong("output of side operation", rank, index);
      }
      ++(*ends)[channel].producers;
      (*ends)[channel].undone += op.if_undone ? 1 : 0;
      (*ends)[channel].first_produced = op.first_iteration;
    }
  }
  return absl::OkStatus();
}

// What the member `rank` of a group does at each meeting, in order.
struct MeetingKind {
  OpKind kind;
  double bytes;
  int first_iteration;
  bool false_start = false;  // where they are
  friend bool operator==(const MeetingKind&, const MeetingKind&) = default;
};

std::vector<MeetingKind> MeetingsOf(const Program& program, int number,
                                    int group) {
  const RankProgram& rank = program.ranks[number];
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
std::vector<MeetingKind> MeetingsSpelledOut(const Program& program, int number,
                                            int group) {
  int full = program.settled();
  for (const RankProgram& rank : program.ranks) {
    for (const SideOp& op : rank.side_ops) {
      full = std::max(full, op.first_iteration);
    }
  }
  std::vector<MeetingKind> meetings;
  OpCursor cursor(program, number, full + 1);
  for (Op op; cursor.Next(&op);) {
    if (op.side_op < 0) continue;
    const SideOp& side_op = program.ranks[number].side_ops[op.side_op];
    if (!IsCollective(side_op.kind) || side_op.group != group) continue;
    meetings.push_back({side_op.kind, side_op.bytes, 0, op.false_start});
  }
  return meetings;
}

// The n-th operation of a member belongs with the n-th ones of the others: all
// have to be of one kind and size. Others have none.
absl::Status VerifyGroups(const Program& program) {
  const bool hooked =
      std::any_of(program.ranks.begin(), program.ranks.end(),
                  [](const RankProgram& rank) { return !rank.hooks.empty(); });
  for (size_t index = 0; index < program.groups.size(); ++index) {
    const std::vector<int>& members = program.groups[index].ranks;
    const auto group = static_cast<int>(index);
    for (const int rank : members) {
      if (rank < 0 || rank >= program.pp()) return Wrong("group", rank, index);
    }
    for (int rank = 0; rank < program.pp(); ++rank) {
      const bool member =
          std::find(members.begin(), members.end(), rank) != members.end();
      // A member alone agrees with itself.
      const bool spell_out =
          members.size() > 1 && (hooked || !program.false_starts.empty());
      const auto meetings_of = spell_out ? MeetingsSpelledOut : MeetingsOf;
      const std::vector<MeetingKind> meetings =
          meetings_of(program, rank, group);
      if (member ? meetings != meetings_of(program, members[0], group)
                 : !meetings.empty()) {
        return absl::InternalError(
            absl::StrCat("program: the members of group ", index,
                         " do not meet rank ", rank, " alike"));
      }
    }
  }
  return absl::OkStatus();
}

// What an iteration that begins twice puts into a channel, less what it takes
// out: of passes in the false start alone, of side operations in both.
absl::Status VerifyFalseStart(const Program& program) {
  std::vector<int64_t> left(program.channels.size(), 0);
  const Start begins[] = {{.iteration = program.settled(), .is_false = true},
                          {.iteration = program.settled(), .again = true}};
  for (int number = 0; number < program.pp(); ++number) {
    const RankProgram& rank = program.ranks[number];
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
          program.channels[channel].to_rank != number) {
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

}  // namespace

absl::Status VerifyProgram(const Program& program) {
  if (program.replicas < 1 || program.iterations < 1 || program.pp() < 1) {
    return absl::InternalError("program: no ranks, replicas or iterations");
  }
  std::vector<Ends> ends(program.channels.size());
  for (int rank = 0; rank < program.pp(); ++rank) {
    const RankProgram& rank_program = program.ranks[rank];
    if (rank_program.order == nullptr) return Wrong("order", rank, 0);
    const auto size = static_cast<int64_t>(rank_program.order->size());
    const bool overlaps = rank_program.later_start > 0;
    // A transfer that holds its rank would outlive the iteration.
    if (rank_program.later_start < 0 || rank_program.later_start > size ||
        (overlaps && program.wait_rule != WaitRule::kBuffered)) {
      return Wrong("later start", rank, 0);
    }
    PW_RETURN_IF_ERROR(VerifyLanes(program, rank));
    PW_RETURN_IF_ERROR(VerifySideOps(program, rank, &ends));
    for (const Lane& lane : program.ranks[rank].lanes) {
      if (lane.output >= 0) ends[lane.output].sent += lane.passes;
      if (lane.input >= 0) ends[lane.input].received += lane.passes;
    }
  }
  for (size_t index = 0; index < ends.size(); ++index) {
    const Channel& channel = program.channels[index];
    const Ends& end = ends[index];
    const bool side = !IsPassChannel(channel);
    const bool paired = end.producers == 1 && end.consumers == 1 &&
                        end.undone % 2 == 0 &&
                        end.first_consumed - end.first_produced <= 1 &&
                        end.first_consumed >= end.first_produced;
    const bool unused = end.producers == 0 && end.consumers == 0;
    const bool ranks_ok = channel.kind != ChannelKind::kEvent ||
                          channel.from_rank == channel.to_rank;
    const bool counts_ok = side || end.sent == end.received;
    if ((side ? !paired : !unused) || !ranks_ok || !counts_ok ||
        !(channel.bytes >= 0)) {
      return absl::InternalError(
          absl::StrCat("program: channel ", index, " does not pair up"));
    }
  }
  for (const std::vector<int>* list :
       {&program.false_starts, &program.undone_steps}) {
    if (std::adjacent_find(list->begin(), list->end(),
                           std::greater_equal<>()) != list->end()) {
      return absl::InternalError("program: false starts out of order");
    }
  }
  const std::vector<int>& false_starts = program.false_starts;
  if (!false_starts.empty()) {
    if (false_starts[0] < 1) {
      return absl::InternalError("program: false starts out of order");
    }
    PW_RETURN_IF_ERROR(VerifyFalseStart(program));
  }
  return VerifyGroups(program);
}

}  // namespace pipewright
