#include "sim/program/program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"
#include "sim/program/cursor.h"

namespace pipewright {
namespace {

// Of which side operations and lanes a channel is the output and the input.
struct Ends {
  int producers = 0;
  int consumers = 0;
  int first_produced = 0;
  int first_consumed = 0;
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

absl::Status VerifySideOps(const Program& program, int rank,
                           std::vector<Ends>* ends) {
  const RankProgram& rank_program = program.ranks[rank];
  std::vector<int> attached(rank_program.side_ops.size(), 0);
  int64_t last_position = 0;
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
  for (size_t index = 0; index < rank_program.side_ops.size(); ++index) {
    const SideOp& op = rank_program.side_ops[index];
    const bool group_ok =
        !IsCollective(op.kind) ||
        (op.group >= 0 && op.group < static_cast<int>(program.groups.size()));
    const bool peer_ok =
        !IsOneSided(op.kind) ||
        (op.peer >= 0 && op.peer < program.pp() && op.peer_offset >= 0);
    if (attached[index] != 1 || !group_ok || !peer_ok || !(op.seconds >= 0) ||
        !(op.bytes >= 0)) {
      return Wrong("side operation", rank, index);
    }
    for (const int32_t channel : op.inputs) {
      if (channel < 0 || channel >= static_cast<int32_t>(ends->size()) ||
          program.channels[channel].to_rank != rank) {
        return Wrong("input of side operation", rank, index);
      }
      ++(*ends)[channel].consumers;
      (*ends)[channel].first_consumed = op.first_iteration;
    }
    for (const int32_t channel : op.outputs) {
      if (channel < 0 || channel >= static_cast<int32_t>(ends->size()) ||
          program.channels[channel].from_rank != rank) {
        return Wrong("output of side operation", rank, index);
      }
      ++(*ends)[channel].producers;
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
  friend bool operator==(const MeetingKind&, const MeetingKind&) = default;
};

std::vector<MeetingKind> MeetingsOf(const RankProgram& rank, int group) {
  std::vector<MeetingKind> meetings;
  for (const Attachment& attachment : rank.attachments) {
    const SideOp& op = rank.side_ops[attachment.side_op];
    if (!IsCollective(op.kind) || op.group != group) continue;
    meetings.push_back({op.kind, op.bytes, op.first_iteration});
  }
  return meetings;
}

// The n-th operation of a member belongs with the n-th ones of the others: all
// have to be of one kind and size. Others have none.
absl::Status VerifyGroups(const Program& program) {
  for (size_t index = 0; index < program.groups.size(); ++index) {
    const std::vector<int>& members = program.groups[index].ranks;
    const auto group = static_cast<int>(index);
    for (const int rank : members) {
      if (rank < 0 || rank >= program.pp()) return Wrong("group", rank, index);
    }
    for (int rank = 0; rank < program.pp(); ++rank) {
      const bool member =
          std::find(members.begin(), members.end(), rank) != members.end();
      const std::vector<MeetingKind> meetings =
          MeetingsOf(program.ranks[rank], group);
      if (member ? meetings != MeetingsOf(program.ranks[members[0]], group)
                 : !meetings.empty()) {
        return absl::InternalError(
            absl::StrCat("program: the members of group ", index,
                         " do not meet rank ", rank, " alike"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view StreamName(Stream stream) {
  constexpr absl::string_view kNames[kNumStreams] = {
      "compute", "send", "receive", "collective", "d2h", "h2d", "cpu"};
  return kNames[static_cast<int>(stream)];
}

absl::string_view OpKindName(OpKind kind) {
  constexpr absl::string_view kNames[kNumOpKinds] = {
      "pass",       "send",           "receive",    "offload", "load", "wait",
      "all-reduce", "reduce-scatter", "all-gather", "barrier", "pull", "push",
      "cpu",        "optimizer",      "validate",   "rollback"};
  return kNames[static_cast<int>(kind)];
}

absl::string_view WaitRuleName(WaitRule rule) {
  constexpr absl::string_view kNames[] = {"buffered", "rendezvous", "batched"};
  return kNames[static_cast<int>(rule)];
}

int64_t RankProgram::NextAttached(size_t attachment, int iteration) const {
  for (; attachment < attachments.size(); ++attachment) {
    const Attachment& next = attachments[attachment];
    if (side_ops[next.side_op].first_iteration <= iteration) {
      return next.position;
    }
  }
  return static_cast<int64_t>(order->size());
}

int64_t Program::num_ops() const {
  int64_t count = 0;
  for (const RankProgram& rank : ranks) {
    count += static_cast<int64_t>(rank.side_ops.size());
    for (size_t index = 0; index < rank.lanes.size(); ++index) {
      const Lane& lane = rank.lanes[index];
      // A mark, no operation.
      if (static_cast<PassKind>(index % kNumPassKinds) == PassKind::kSync) {
        continue;
      }
      count += lane.output >= 0 ? 2 * lane.passes : lane.passes;
    }
  }
  return count;
}

int64_t Program::num_passes() const {
  int64_t count = 0;
  for (const RankProgram& rank : ranks) {
    for (size_t lane = 0; lane < rank.lanes.size(); ++lane) {
      const auto kind = static_cast<PassKind>(lane % kNumPassKinds);
      if (IsComputePass(kind)) count += rank.lanes[lane].passes;
    }
  }
  return count;
}

double Program::BusySeconds(int rank) const {
  const RankProgram& rank_program = ranks[rank];
  double seconds = 0;
  if (!microbatch_factor.empty() || !slice_factor.empty() || pair_factor != 1) {
    bool joint = false;
    for (const Pass pass : *rank_program.order) {
      const bool in_block = joint || pass.joint_with_next();
      joint = pass.joint_with_next();
      if (!IsComputePass(pass.kind())) continue;
      seconds += rank_program.lanes[pass.lane()].seconds * factor(pass) *
                 (in_block ? pair_factor : 1);
    }
    return seconds;
  }
  for (size_t lane = 0; lane < rank_program.lanes.size(); ++lane) {
    if (!IsComputePass(static_cast<PassKind>(lane % kNumPassKinds))) continue;
    seconds += rank_program.lanes[lane].seconds *
               static_cast<double>(rank_program.lanes[lane].passes);
  }
  return seconds;
}

absl::Status VerifyProgram(const Program& program) {
  if (program.replicas < 1 || program.iterations < 1 || program.pp() < 1) {
    return absl::InternalError("program: no ranks, replicas or iterations");
  }
  std::vector<Ends> ends(program.channels.size());
  for (int rank = 0; rank < program.pp(); ++rank) {
    if (program.ranks[rank].order == nullptr) return Wrong("order", rank, 0);
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
  return VerifyGroups(program);
}

std::string ToString(const Program& program) {
  std::string out = absl::StrFormat(
      "program %s ranks %d replicas %d iterations %d wait %s\n", program.name,
      program.pp(), program.replicas, program.iterations,
      std::string(WaitRuleName(program.wait_rule)));
  for (size_t index = 0; index < program.groups.size(); ++index) {
    constexpr absl::string_view kSpans[] = {"replicas", "ranks", "all"};
    const Group& group = program.groups[index];
    absl::StrAppend(&out, "group ", index, " ",
                    kSpans[static_cast<int>(group.span)], " ",
                    absl::StrJoin(group.ranks, " "), "\n");
  }
  for (size_t index = 0; index < program.channels.size(); ++index) {
    constexpr absl::string_view kKinds[] = {"activation", "gradient", "message",
                                            "event"};
    const Channel& channel = program.channels[index];
    absl::StrAppend(&out, "channel ", index, " ",
                    kKinds[static_cast<int>(channel.kind)], " ",
                    channel.from_rank, ">", channel.to_rank, " ", channel.bytes,
                    " B\n");
  }
  for (int rank = 0; rank < program.pp(); ++rank) {
    absl::StrAppend(&out, rank, ":");
    // The first iteration that nothing is left out of.
    int full = 0;
    for (const SideOp& op : program.ranks[rank].side_ops) {
      full = std::max(full, op.first_iteration);
    }
    OpCursor cursor(program, rank, full + 1);
    for (Op op; cursor.Next(&op);) {
      if (op.iteration < full) continue;
      absl::StrAppend(&out, " ", OpToString(program, op));
      if (op.side_op < 0) continue;
      const int first =
          program.ranks[rank].side_ops[op.side_op].first_iteration;
      if (first > 0) absl::StrAppend(&out, "[", first, "..]");
    }
    out += '\n';
  }
  return out;
}

}  // namespace pipewright
