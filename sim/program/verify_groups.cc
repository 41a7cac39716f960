#include "sim/program/verify_groups.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/program/cursor.h"

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

}  // namespace pipewright
