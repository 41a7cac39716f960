// Sharded gradients and parameters: what comes with the passes of every
// microbatch (zero2, fsdp).
#include <utility>

#include "sim/program/lowering.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Gathers run one block of work ahead, as FSDP2 does in its backward and, by
// its limit of two outputs alive, in its forward. [framework source]
constexpr int kGathersAhead = 1;
// The block that ends waits for the reduce-scatter two back, so that one is
// under way while one more is prepared (FSDP2, _fsdp_param_group.py).
// [framework source]
constexpr int kScattersBehind = 2;

}  // namespace

int32_t BlockShards::AddHookOp(int rank, OpKind kind, double bytes, int chunk) {
  return AddSideOp(rank,
                   {.kind = kind,
                    .stream = Stream::kCollective,
                    .bytes = bytes,
                    .group = groups_[rank],
                    .chunk = chunk,
                    .stage = schedule_.placement.StageOf(rank, chunk, 0)});
}

// The part of a stage's weights that its backward needs: not that of frozen
// layers in front of the first trained one.
double BlockShards::PartForBackward(int stage) const {
  const std::vector<std::vector<LayerShare>>& stages = options_.layers.stages;
  if (stages.empty()) return 1;
  const int in_front = LayersInFront(stages)[stage];
  double all = 0;
  double needed = 0;
  for (int layer = 0; layer < static_cast<int>(stages[stage].size()); ++layer) {
    all += stages[stage][layer].stored;
    if (layer >= in_front) needed += stages[stage][layer].stored;
  }
  return all > 0 ? needed / all : 1;
}

// One operation a chunk on the lanes of these kinds.
void BlockShards::HookChunks(int rank, OpKind kind, LaneHook hook,
                             const std::vector<PassKind>& kinds) {
  RankProgram& target = program_.ranks[rank];
  hook.side_ops.assign(target.lanes.size(), -1);
  for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
    const int stage = schedule_.placement.StageOf(rank, chunk, 0);
    const bool gathers = kind == OpKind::kAllGather;
    const double whole = gathers ? options_.parameter_bytes[stage]
                                 : options_.gradient_bytes[stage];
    int32_t of_whole = -1;
    int32_t of_part = -1;
    for (const PassKind each : kinds) {
      const bool backward = gathers && each != PassKind::kForward;
      const double part = backward ? PartForBackward(stage) : 1;
      if (part == 0) continue;
      int32_t& op = part < 1 ? of_part : of_whole;
      if (op < 0) op = AddHookOp(rank, kind, part * whole, chunk);
      hook.side_ops[Pass::LaneOf(each, chunk, 0)] = op;
    }
  }
  target.hooks.push_back(std::move(hook));
}

void BlockShards::Add(RankEvents* events) {
  const bool passes = options_.shard_blocks == ShardBlocks::kPass;
  const auto fires = options_.shard_blocks == ShardBlocks::kRun
                         ? LaneHook::Fires::kEveryRun
                         : LaneHook::Fires::kEveryPass;
  const int64_t every = options_.shard_blocks == ShardBlocks::kUnit
                            ? int64_t{schedule_.unit} * schedule_.slices
                            : 1;
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    groups_.push_back(AddHolders(Group::Span::kReplicas, {rank}));
    if (traits().shards_weights) {
      const LaneHook gather = {.place = LaneHook::Place::kBefore,
                               .fires = fires,
                               .every = every,
                               .window = kGathersAhead};
      // W needs no parameters. Larger blocks are those of one direction.
      const std::vector<PassKind> forward = {PassKind::kForward};
      std::vector<PassKind> backward = {PassKind::kRecompute,
                                        PassKind::kBackwardInput,
                                        PassKind::kBackwardFull};
      if (passes) {
        backward.insert(backward.begin(), forward.begin(), forward.end());
      } else {
        HookChunks(rank, OpKind::kAllGather, gather, forward);
      }
      HookChunks(rank, OpKind::kAllGather, gather, backward);
    }
    const int32_t event = AddEvent(rank);
    (*events)[rank].push_back(event);
    HookChunks(rank, OpKind::kReduceScatter,
               {.place = LaneHook::Place::kAfter,
                .fires = fires,
                .every = every,
                .window = kScattersBehind,
                .output = event},
               {PassKind::kBackwardWeight, PassKind::kBackwardFull});
  }
}

}  // namespace pipewright
