#include "tests/support/random_side_ops.h"

#include <algorithm>
#include <utility>

namespace pipewright {
namespace {

std::vector<DpClass*> ClassesOf(Program& program) {
  std::vector<DpClass*> all = {&program};
  for (DpClass& other : program.more_classes) all.push_back(&other);
  return all;
}

void SortAttachmentsOf(const Program& program, DpClass& own) {
  for (RankProgram& rank : own.ranks) {
    std::stable_sort(rank.attachments.begin(), rank.attachments.end(),
                     [](const Attachment& a, const Attachment& b) {
                       return a.position < b.position;
                     });
    if (program.false_starts.empty()) continue;
    rank.false_start_end = 0;
    for (size_t index = 0; index < rank.attachments.size(); ++index) {
      const SideOp& op = rank.side_ops[rank.attachments[index].side_op];
      if (op.starts != SideOp::Starts::kFalse) continue;
      rank.false_start_end = static_cast<int>(index) + 1;
    }
    // What others count on comes once.
    for (int index = 0; index < rank.false_start_end; ++index) {
      SideOp& op = rank.side_ops[rank.attachments[index].side_op];
      const bool counted = !op.outputs.empty() || op.group >= 0;
      if (counted && op.starts == SideOp::Starts::kEvery) {
        op.starts = SideOp::Starts::kFirst;
      }
    }
  }
}

int64_t RandomPosition(const RankProgram& rank, Random& random) {
  const RankOrder& order = *rank.order;
  int64_t position = random.Int(static_cast<int>(rank.later_start),
                                static_cast<int>(order.size()));
  if (position > 0 && order[position - 1].joint_with_next()) --position;
  return position;
}

void Attach(DpClass& own, int rank, int64_t position, SideOp op) {
  RankProgram& target = own.ranks[rank];
  target.side_ops.push_back(std::move(op));
  target.attachments.push_back(
      {.position = position,
       .side_op = static_cast<int32_t>(target.side_ops.size()) - 1});
}

// Host work, one-sided transfers, and sometimes the compute stream waits for
// them at the end.
void AddLocalOpsOf(DpClass& program, Random& random) {
  const auto pp = static_cast<int>(program.ranks.size());
  for (int rank = 0; rank < pp; ++rank) {
    const RankOrder& order = *program.ranks[rank].order;
    const auto size = static_cast<int64_t>(order.size());
    for (int count = random.Int(0, 3); count > 0; --count) {
      SideOp op;
      switch (random.Int(0, 3)) {
        case 0:
          op = {.kind = OpKind::kCpu,
                .stream = Stream::kCpu,
                .seconds = random.Time(20)};
          break;
        case 1:
          op = {.kind = OpKind::kPull, .stream = Stream::kReceive};
          break;
        case 2:
          op = {.kind = OpKind::kPush, .stream = Stream::kSend};
          break;
        default:
          op = {.kind = OpKind::kRollback, .seconds = random.Time(4)};
      }
      if (IsOneSided(op.kind)) {
        op.peer = random.Int(0, pp - 1);
        op.bytes = random.Int(0, 64);
      }
      const int64_t position = RandomPosition(program.ranks[rank], random);
      if (random.Chance(60)) {
        program.channels.push_back({.from_rank = rank, .to_rank = rank});
        const auto event = static_cast<int32_t>(program.channels.size()) - 1;
        op.outputs.push_back(event);
        Attach(program, rank, size, {.kind = OpKind::kWait, .inputs = {event}});
      }
      Attach(program, rank, position, std::move(op));
    }
  }
}

// Collectives before the first pass of some, in the same order on all.
void AddCollectives(Program& program, Random& random) {
  for (int count = random.Int(0, 2); count > 0; --count) {
    Group group;
    group.span = random.Chance(50) ? Group::Span::kRanks : Group::Span::kAll;
    for (int rank = 0; rank < program.pp(); ++rank) {
      if (program.pp() <= 2 || random.Chance(70)) group.ranks.push_back(rank);
    }
    if (group.ranks.empty()) continue;
    constexpr OpKind kKinds[] = {OpKind::kAllReduce, OpKind::kReduceScatter,
                                 OpKind::kAllGather, OpKind::kBarrier};
    const OpKind kind = kKinds[random.Int(0, 3)];
    const double bytes = kind == OpKind::kBarrier ? 0 : random.Int(0, 128);
    const bool holds_compute = random.Chance(30);
    program.groups.push_back(group);
    for (DpClass* own : ClassesOf(program)) {
      for (const int rank : group.ranks) {
        Attach(
            *own, rank, own->ranks[rank].later_start,
            {.kind = kind,
             .stream = holds_compute ? Stream::kCompute : Stream::kCollective,
             .bytes = bytes,
             .group = static_cast<int>(program.groups.size()) - 1});
      }
    }
  }
}

// A hook on the lanes of some kinds: what it runs, where, how far ahead.
LaneHook RandomHook(Random& random) {
  LaneHook hook;
  hook.place =
      random.Chance(50) ? LaneHook::Place::kBefore : LaneHook::Place::kAfter;
  hook.fires = random.Chance(50) ? LaneHook::Fires::kEveryPass
                                 : LaneHook::Fires::kEveryRun;
  if (hook.fires == LaneHook::Fires::kEveryPass && random.Chance(30)) {
    hook.every = random.Int(2, 5);
  }
  hook.window = random.Int(0, 3);
  return hook;
}

// Adds it to a rank, with one operation a chunk or one for all.
void AddHook(DpClass& own, int rank, LaneHook hook, const SideOp& op, int kinds,
             bool by_chunk) {
  RankProgram& target = own.ranks[rank];
  if (op.stream == Stream::kCompute) hook.window = 0;
  if (target.later_start > 0) hook.every = 1;
  hook.side_ops.assign(target.lanes.size(), -1);
  const int first = static_cast<int>(target.side_ops.size());
  const int vpp = own.schedule->vpp();
  for (int chunk = 0; chunk < (by_chunk ? vpp : 1); ++chunk) {
    target.side_ops.push_back(op);
    target.side_ops.back().chunk = chunk;
  }
  for (size_t lane = 0; lane < hook.side_ops.size(); ++lane) {
    const auto kind = static_cast<int>(Pass::KindOf(lane));
    const auto chunk = static_cast<int>(lane / Pass::LaneCount(1));
    if ((kinds >> kind & 1) == 0 ||
        !IsComputePass(static_cast<PassKind>(kind))) {
      continue;
    }
    hook.side_ops[lane] = first + (by_chunk ? chunk : 0);
  }
  target.hooks.push_back(std::move(hook));
}

// Hooks of one rank.
void AddLocalHooks(DpClass& program, Random& random) {
  const auto pp = static_cast<int>(program.ranks.size());
  for (int rank = 0; rank < pp; ++rank) {
    for (int count = random.Int(0, 2); count > 0; --count) {
      constexpr Stream kStreams[] = {Stream::kCompute, Stream::kCpu,
                                     Stream::kReceive, Stream::kCollective};
      SideOp op = {.kind = OpKind::kCpu, .stream = kStreams[random.Int(0, 3)]};
      op.seconds = random.Time(3);
      if (op.stream == Stream::kReceive) {
        op.kind = OpKind::kPull;
        op.peer = random.Int(0, pp - 1);
        op.bytes = random.Int(0, 32);
      }
      // A kind that every schedule has: F, or B and BW, or W and BW.
      constexpr int kKinds[] = {1, 2 | 8, 4 | 8, 1 | 2 | 8};
      AddHook(program, rank, RandomHook(random), op, kKinds[random.Int(0, 3)],
              random.Chance(50));
      if (!random.Chance(30)) continue;
      program.channels.push_back({.from_rank = rank, .to_rank = rank});
      const auto event = static_cast<int32_t>(program.channels.size()) - 1;
      program.ranks[rank].hooks.back().output = event;
      Attach(program, rank,
             static_cast<int64_t>(program.ranks[rank].order->size()),
             {.kind = OpKind::kWait, .inputs = {event}});
    }
  }
}

// Sometimes one on which all ranks meet.
void AddMeetingHook(Program& program, Random& random) {
  // False starts, and first iterations that are never flushed, are not
  // equally long on all ranks.
  if (!program.false_starts.empty() || program.ranks[0].later_start > 0 ||
      !random.Chance(25)) {
    return;
  }
  // Nor are classes that run another number of forwards.
  for (const DpClass* own : ClassesOf(program)) {
    if (own->schedule->microbatches != program.schedule->microbatches) return;
  }
  Group group = {.span = Group::Span::kAll};
  for (int rank = 0; rank < program.pp(); ++rank) group.ranks.push_back(rank);
  program.groups.push_back(group);
  LaneHook hook = RandomHook(random);
  hook.fires = LaneHook::Fires::kEveryPass;
  hook.every = 1;
  const SideOp op = {.kind = OpKind::kAllGather,
                     .stream = Stream::kCollective,
                     .bytes = static_cast<double>(random.Int(0, 64)),
                     .group = static_cast<int>(program.groups.size()) - 1};
  for (DpClass* own : ClassesOf(program)) {
    for (int rank = 0; rank < program.pp(); ++rank) {
      AddHook(*own, rank, hook, op, 1, false);
    }
  }
}

}  // namespace

void AddRandomSideOps(Program& program, Random& random) {
  for (DpClass* own : ClassesOf(program)) AddLocalOpsOf(*own, random);
  // All members would have to be in a false start, or none.
  if (program.false_starts.empty()) AddCollectives(program, random);
  for (DpClass* own : ClassesOf(program)) AddLocalHooks(*own, random);
  AddMeetingHook(program, random);
  for (DpClass* own : ClassesOf(program)) SortAttachmentsOf(program, *own);
}

}  // namespace pipewright
