#include "tests/support/random_program.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"

namespace pipewright {
namespace {

void SortAttachments(Program& program) {
  for (RankProgram& rank : program.ranks) {
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

void Attach(Program& program, int rank, int64_t position, SideOp op) {
  RankProgram& target = program.ranks[rank];
  target.side_ops.push_back(std::move(op));
  target.attachments.push_back(
      {.position = position,
       .side_op = static_cast<int32_t>(target.side_ops.size()) - 1});
}

// Host work, one-sided transfers, and sometimes the compute stream waits for
// them at the end.
void AddLocalOps(Program& program, Random& random) {
  for (int rank = 0; rank < program.pp(); ++rank) {
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
        op.peer = random.Int(0, program.pp() - 1);
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
    for (const int rank : group.ranks) {
      Attach(program, rank, program.ranks[rank].later_start,
             {.kind = kind,
              .stream = holds_compute ? Stream::kCompute : Stream::kCollective,
              .bytes = bytes,
              .group = static_cast<int>(program.groups.size()) - 1});
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
void AddHook(Program& program, int rank, LaneHook hook, const SideOp& op,
             int kinds, bool by_chunk) {
  RankProgram& target = program.ranks[rank];
  if (op.stream == Stream::kCompute) hook.window = 0;
  if (target.later_start > 0) hook.every = 1;
  hook.side_ops.assign(target.lanes.size(), -1);
  const int first = static_cast<int>(target.side_ops.size());
  const int vpp = program.schedule->vpp();
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

// Hooks of one rank, and sometimes one on which all ranks meet.
void AddHooks(Program& program, Random& random) {
  for (int rank = 0; rank < program.pp(); ++rank) {
    for (int count = random.Int(0, 2); count > 0; --count) {
      constexpr Stream kStreams[] = {Stream::kCompute, Stream::kCpu,
                                     Stream::kReceive, Stream::kCollective};
      SideOp op = {.kind = OpKind::kCpu, .stream = kStreams[random.Int(0, 3)]};
      op.seconds = random.Time(3);
      if (op.stream == Stream::kReceive) {
        op.kind = OpKind::kPull;
        op.peer = random.Int(0, program.pp() - 1);
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
  // False starts, and first iterations that are never flushed, are not
  // equally long on all ranks.
  if (!program.false_starts.empty() || program.ranks[0].later_start > 0 ||
      !random.Chance(25)) {
    return;
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
  for (int rank = 0; rank < program.pp(); ++rank) {
    AddHook(program, rank, hook, op, 1, false);
  }
}

}  // namespace

ShapeParams SmallFabric(int nodes, int devices_per_node, int nics_per_node) {
  ShapeParams params;
  params.name = "small-fabric";
  params.shape = nodes == 1 ? "node" : "nic-switch";
  params.nodes = nodes;
  params.devices_per_node = devices_per_node;
  params.nics_per_node = nics_per_node;
  params.pcie_per_switch = 1;
  params.nvlink = {.bytes_per_s = 64, .latency_s = 0.125, .source = "test"};
  params.nic = {.bytes_per_s = 16, .latency_s = 0.25, .source = "test"};
  params.pcie = {.bytes_per_s = 8, .latency_s = 0.125, .source = "test"};
  return params;
}

absl::StatusOr<RandomProgram> MakeRandomProgram(uint32_t seed,
                                                const RandomOptions& options) {
  Random random(seed);
  absl::StatusOr<RandomProgram> made = MakeRandomProgram(random, options);
  if (made.ok()) made->about = absl::StrCat("seed ", seed, " ", made->about);
  return made;
}

absl::StatusOr<RandomProgram> MakeRandomProgram(Random& random,
                                                const RandomOptions& options) {
  const int pp = random.Int(1, 5);
  const int microbatches = pp * random.Int(2, 4);
  PW_ASSIGN_OR_RETURN(Schedule schedule,
                      AnySchedule(AnyRow(random), pp, microbatches));
  RandomProgram out;
  out.about =
      absl::StrCat(schedule.name, " pp ", pp, " microbatches ", microbatches);
  if (random.Chance(25)) {
    schedule = WithJointPairs(schedule, random);
    out.about += " joint";
  } else if (options.copies && random.Chance(30)) {
    schedule = WithCopies(schedule, random);
    out.about += " copies";
  }

  LowerOptions lower;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    lower.costs.stages.push_back({.forward_s = 1 + random.Time(4),
                                  .backward_input_s = 1 + random.Time(6),
                                  .backward_weight_s = 1 + random.Time(8),
                                  .offload_s = random.Time(6),
                                  .load_s = random.Time(6)});
    lower.gradient_bytes.push_back(random.Int(1, 64));
    lower.parameter_bytes.push_back(random.Int(1, 32));
  }
  if (random.Chance(30)) {
    for (int index = 0; index < schedule.microbatches_per_direction();
         ++index) {
      lower.costs.microbatch_factor.push_back(0.5 + random.Time(1));
    }
  }
  if (random.Chance(30)) lower.costs.pair_factor = random.Int(2, 5) / 4.0;
  if (schedule.slices > 1) {
    for (int slice = 0; slice < schedule.slices; ++slice) {
      lower.costs.slice_factor.push_back(0.5 + 0.25 * slice);
    }
  }
  lower.costs.optimizer_s = random.Time(3);
  lower.costs.validation_s = random.Time(1);
  lower.replicas = random.Int(1, options.most_replicas);
  lower.data_parallel = static_cast<DataParallel>(random.Int(0, 4));
  lower.shard_blocks = static_cast<ShardBlocks>(random.Int(0, 2));
  schedule.unit = random.Int(1, 5);
  lower.optimizer = static_cast<OptimizerMode>(random.Int(0, 2));
  lower.iterations = random.Int(1, 3);
  if (lower.optimizer == OptimizerMode::kPostValidated && random.Chance(60)) {
    lower.validation = static_cast<ValidationPlace>(random.Int(0, 1));
    lower.costs.rollback_s = random.Time(6);
    for (int iteration = 0; iteration < 2; ++iteration) {
      if (!random.Chance(50)) continue;
      lower.failing_steps.push_back(iteration);
      lower.iterations = iteration + 4;
    }
  }
  lower.hop_bytes = random.Int(1, 40);
  if (schedule.update_every > 0) {
    lower.optimizer = OptimizerMode::kNone;
    lower.failing_steps.clear();
    lower.iterations = random.Int(1, 4);
    lower.costs.prediction_s = random.Time(2);
    lower.data_parallel =
        schedule.update_every == 1 ? DataParallel::kNone : DataParallel::kDdp;
  }
  if (options.holding_rules && schedule.update_every == 0 &&
      random.Chance(40)) {
    lower.wait_rule =
        random.Chance(50) ? WaitRule::kRendezvous : WaitRule::kBatched;
  }
  if (options.cluster && random.Chance(60)) {
    const int per_rank = random.Chance(50) ? 1 : random.Int(2, 3);
    const int devices = 2 * ((pp * lower.replicas * per_rank + 1) / 2);
    const int nodes = random.Chance(50) ? 2 : 1;
    PW_ASSIGN_OR_RETURN(
        Cluster cluster,
        BuildCluster(SmallFabric(nodes, devices / nodes, nodes == 1 ? 0 : 1)));
    lower.network.cluster = std::make_shared<Cluster>(std::move(cluster));
    PW_ASSIGN_OR_RETURN(
        RankMapping mapping,
        RankMapping::FromOrder(random.Chance(50) ? "dp-pp" : "pp-dp", pp,
                               lower.replicas, devices, per_rank));
    lower.network.mapping = std::make_shared<RankMapping>(std::move(mapping));
    if (random.Chance(50)) {
      lower.activation_bytes.assign(schedule.stages(), random.Int(1, 30));
    }
    absl::StrAppend(&out.about, " nodes ", nodes, " devices of a rank ",
                    per_rank);
  } else {
    lower.network.hop_s = random.Time(3);
  }
  absl::StrAppend(&out.about, " replicas ", lower.replicas, " dp ",
                  static_cast<int>(lower.data_parallel), " optimizer ",
                  static_cast<int>(lower.optimizer), " false starts ",
                  lower.failing_steps.size(), " ",
                  WaitRuleName(lower.wait_rule));
  PW_ASSIGN_OR_RETURN(
      out.program,
      Lower(std::make_shared<const Schedule>(std::move(schedule)), lower));
  if (options.side_operations) {
    AddLocalOps(out.program, random);
    // All members would have to be in a false start, or none.
    if (out.program.false_starts.empty()) AddCollectives(out.program, random);
    AddHooks(out.program, random);
    SortAttachments(out.program);
    PW_RETURN_IF_ERROR(VerifyProgram(out.program));
  }
  return out;
}

}  // namespace pipewright
