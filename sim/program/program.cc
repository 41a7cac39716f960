#include "sim/program/program.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/program/cursor.h"
#include "sim/schedule/grid.h"

namespace pipewright {
namespace {

// What the hooks of a rank add to its side operations in an iteration.
int64_t HookedOps(const RankProgram& rank) {
  if (rank.hooks.empty()) return 0;
  int64_t count = 0;
  for (const LaneHook& hook : rank.hooks) {
    std::vector<int32_t> ops;
    for (const int32_t op : hook.side_ops) {
      if (op >= 0) ops.push_back(op);
    }
    std::sort(ops.begin(), ops.end());
    count -= std::unique(ops.begin(), ops.end()) - ops.begin();
  }
  SideSequence sequence(rank);
  for (sequence.Begin({.iteration = 1}); true;) {
    if (sequence.item() != nullptr) {
      count += sequence.item()->hook >= 0 ? 1 : 0;
      sequence.Taken();
    } else if (sequence.holds()) {
      sequence.Passed();
    } else {
      return count;
    }
  }
}

std::string StartToString(const Program& program, int dp_class, int number,
                          int iteration, bool false_start) {
  const RankProgram& rank = program.dp_class(dp_class).ranks[number];
  std::string out;
  // What later iterations leave out stands in the first.
  const bool overlaps = rank.later_start > 0;
  if (overlaps) iteration = 0;
  bool marked = !overlaps;
  OpCursor cursor(program, number, iteration + 1, dp_class);
  for (Op op; cursor.Next(&op);) {
    if (op.iteration < iteration || op.false_start != false_start) continue;
    if (!marked && op.position >= rank.later_start) {
      out += " |";
      marked = true;
    }
    absl::StrAppend(&out, " ", OpToString(program, op));
    if (op.side_op < 0) continue;
    const int first = rank.side_ops[op.side_op].first_iteration;
    if (first > 0) absl::StrAppend(&out, "[", first, "..]");
  }
  return out;
}

}  // namespace

absl::string_view StreamName(Stream stream) {
  constexpr absl::string_view kNames[kNumStreams] = {
      "compute",     "send", "receive",       "collective",    "d2h",
      "h2d",         "cpu",  "momentum-copy", "variance-copy", "master-copy",
      "weight-copy", "cast", "gradient-copy", "reduction"};
  return kNames[static_cast<int>(stream)];
}

absl::string_view OpKindName(OpKind kind) {
  constexpr absl::string_view kNames[kNumOpKinds] = {
      "pass",       "send",      "receive",    "offload",
      "load",       "wait",      "all-reduce", "reduce-scatter",
      "all-gather", "barrier",   "pull",       "push",
      "cpu",        "optimizer", "validate",   "rollback",
      "predict",    "drop",      "copy-out",   "copy-in",
      "host-adam",  "host-cast", "host-undo",  "flush",
      "cast"};
  return kNames[static_cast<int>(kind)];
}

absl::string_view WaitRuleName(WaitRule rule) {
  constexpr absl::string_view kNames[] = {"buffered", "rendezvous", "batched",
                                          "stepped"};
  return kNames[static_cast<int>(rule)];
}

std::vector<Start> Program::StartsOf(int iteration) const {
  const auto falsely = [&](int number) {
    return std::binary_search(false_starts.begin(), false_starts.end(), number);
  };
  const bool fails = falsely(iteration + 1);
  const bool undone =
      std::binary_search(undone_steps.begin(), undone_steps.end(), iteration);
  if (!falsely(iteration)) {
    return {{.iteration = iteration, .fails = fails, .undone = undone}};
  }
  return {{.iteration = iteration, .is_false = true},
          {.iteration = iteration, .again = true, .fails = fails}};
}

int64_t DpClass::num_ops() const {
  int64_t count = 0;
  for (const RankProgram& rank : ranks) {
    for (const SideOp& op : rank.side_ops) {
      count += op.starts == SideOp::Starts::kFalse || op.if_undone ? 0 : 1;
    }
    count += HookedOps(rank);
    for (size_t index = 0; index < rank.lanes.size(); ++index) {
      const Lane& lane = rank.lanes[index];
      // Marks, no operations.
      const auto kind = Pass::KindOf(index);
      if (kind == PassKind::kSync || kind == PassKind::kFree) continue;
      count += lane.output >= 0 ? 2 * lane.passes : lane.passes;
    }
  }
  return count;
}

int64_t DpClass::num_passes() const {
  int64_t count = 0;
  for (const RankProgram& rank : ranks) {
    for (size_t lane = 0; lane < rank.lanes.size(); ++lane) {
      const auto kind = Pass::KindOf(lane);
      if (!IsComputePass(kind)) continue;
      // A pass counts where it begins.
      const auto chunk = static_cast<int>(lane / kNumPassKinds / 2);
      if (rank.BeginsPass(Pass(kind, 0, chunk))) {
        count += rank.lanes[lane].passes;
      }
    }
  }
  return count;
}

std::vector<int> Program::ReplicasOfClasses() const {
  std::vector<int> counts(num_classes(), 0);
  if (class_of_replica.empty()) counts[0] = replicas;
  for (const int index : class_of_replica) ++counts[index];
  return counts;
}

std::vector<int> Program::FirstReplicas() const {
  std::vector<int> first(num_classes(), 0);
  for (int replica = replicas - 1; replica >= 0; --replica) {
    first[ClassOf(replica)] = replica;
  }
  return first;
}

double Program::BusySeconds(int rank, int dp_class_index) const {
  const DpClass& own = dp_class(dp_class_index);
  const RankProgram& rank_program = own.ranks[rank];
  double seconds = 0;
  if (own.has_factors() || pair_factor != 1) {
    const RankOrder& order = *rank_program.order;
    bool joint = false;
    for (size_t position = rank_program.later_start; position < order.size();
         ++position) {
      const Pass pass = order[position];
      const bool in_block = joint || pass.joint_with_next();
      joint = pass.joint_with_next();
      if (!IsComputePass(pass.kind())) continue;
      seconds += rank_program.lanes[pass.lane()].seconds *
                 own.Factor(rank, pass) * (in_block ? pair_factor : 1);
    }
    return seconds;
  }
  for (size_t lane = 0; lane < rank_program.lanes.size(); ++lane) {
    if (!IsComputePass(Pass::KindOf(lane))) continue;
    seconds += rank_program.lanes[lane].seconds *
               static_cast<double>(rank_program.lanes[lane].passes);
  }
  return seconds;
}

namespace {

// The first iteration that begins once and leaves nothing out.
int FullIteration(const Program& program) {
  int full = 0;
  for (int index = 0; index < program.num_classes(); ++index) {
    for (const RankProgram& rank : program.dp_class(index).ranks) {
      for (const SideOp& op : rank.side_ops) {
        full = std::max(full, op.first_iteration);
      }
    }
  }
  while (program.StartsOf(full).size() > 1 || program.StartsOf(full)[0].fails ||
         program.StartsOf(full)[0].undone) {
    ++full;
  }
  return full;
}

std::string ClassToString(const Program& program, int dp_class) {
  std::string out;
  const std::vector<Channel>& channels = program.dp_class(dp_class).channels;
  for (size_t index = 0; index < channels.size(); ++index) {
    constexpr absl::string_view kKinds[] = {"activation", "gradient", "message",
                                            "event"};
    const Channel& channel = channels[index];
    absl::StrAppend(&out, "channel ", index, " ",
                    kKinds[static_cast<int>(channel.kind)], " ",
                    channel.from_rank, ">", channel.to_rank, " ", channel.bytes,
                    " B\n");
  }
  const int full = FullIteration(program);
  for (int rank = 0; rank < program.pp(); ++rank) {
    absl::StrAppend(&out, rank, ":",
                    StartToString(program, dp_class, rank, full, false), "\n");
  }
  for (int rank = 0; rank < program.pp(); ++rank) {
    if (program.false_starts.empty()) break;
    absl::StrAppend(
        &out, rank, " false start:",
        StartToString(program, dp_class, rank, program.false_starts[0], true),
        "\n");
  }
  return out;
}

}  // namespace

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
                    absl::StrJoin(group.ranks, " "),
                    group.contexts ? " contexts" : "", "\n");
  }
  for (int index = 0; index < program.num_classes(); ++index) {
    if (program.num_classes() > 1) {
      absl::StrAppend(&out, "class ", index, " replicas");
      for (int replica = 0; replica < program.replicas; ++replica) {
        if (program.ClassOf(replica) == index)
          absl::StrAppend(&out, " ", replica);
      }
      absl::StrAppend(&out, "\n");
    }
    absl::StrAppend(&out, ClassToString(program, index));
  }
  return out;
}

double Program::PassSeconds(int iteration, int replica, int rank,
                            Pass pass) const {
  const DpClass& own = OfReplica(replica);
  const Lane& lane = own.ranks[rank].lanes[pass.lane()];
  const double seconds = lane.seconds * own.Factor(rank, pass);
  return jitter == nullptr ? seconds
                           : seconds * jitter->OfPass(iteration, replica, rank,
                                                      lane.stage, pass);
}

double Program::SideSeconds(int iteration, int replica, int rank,
                            const SideOp& op) const {
  return jitter == nullptr || op.kind != OpKind::kOptimizer
             ? op.seconds
             : op.seconds * jitter->OfOptimizer(iteration, replica, rank);
}

std::string BlockedGrid(const Program& program,
                        const std::vector<int64_t>& positions, int dp_class) {
  const DpClass& own = program.dp_class(dp_class);
  Schedule schedule = *own.schedule;
  std::vector<int64_t> whole = positions;
  for (int rank = 0; rank < program.pp(); ++rank) {
    const RankProgram& ran = own.ranks[rank];
    schedule.orders[rank] = ran.order;
    if (ran.layers.empty()) continue;
    // Layers are shown as the passes they are of.
    auto passes = std::make_shared<RankOrder>();
    whole[rank] = 0;
    for (int64_t index = 0; index < std::ssize(*ran.order); ++index) {
      const Pass pass = (*ran.order)[index];
      if (!ran.EndsPass(pass)) continue;
      passes->push_back(ran.Whole(pass));
      whole[rank] += index < positions[rank] ? 1 : 0;
    }
    schedule.orders[rank] = std::move(passes);
  }
  const std::string grid = BlockedGrid(schedule, whole);
  if (program.num_classes() == 1) return grid;
  return absl::StrCat("a replica of class ", dp_class, ":\n", grid);
}

}  // namespace pipewright
