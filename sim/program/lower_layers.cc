// Layers as the unit of sharding (FSDP2; lower_odc.cc has what is odc's): a
// pass is cut into its layers, and gathers and reductions come with each.
//
// FSDP2's rules (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py):
// - a gather runs while the layer before it computes, never ahead of the pass
//   that its layer is of;
// - a layer's backward waits until the reduction two layers back has ended, so
//   that one is under way while one more is prepared;
// - a backward ends when its last reduction has.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/program/lower.h"
#include "sim/program/lowering.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// As of blocks (FSDP2, lower_shards.cc). [framework source]
constexpr int kLayersGatheredAhead = 1;
constexpr int kReductionsBehind = 2;

constexpr PassKind kLayerKinds[] = {
    PassKind::kForward, PassKind::kBackwardInput, PassKind::kBackwardWeight,
    PassKind::kBackwardFull, PassKind::kRecompute};
constexpr PassKind kReducingKinds[] = {PassKind::kBackwardWeight,
                                       PassKind::kBackwardFull};
// W needs no parameters.
constexpr PassKind kGatheringBackwards[] = {
    PassKind::kRecompute, PassKind::kBackwardInput, PassKind::kBackwardFull};

absl::Status CheckPart(int part, int of, const char* field) {
  if (part == 0 || (part > 0 && part <= of && of % part == 0)) {
    return absl::OkStatus();
  }
  return BadValue(field, absl::StrCat(part),
                  absl::StrCat("0 or a divisor of ", of));
}

}  // namespace

std::vector<int> LayersInFront(
    const std::vector<std::vector<LayerShare>>& stages) {
  std::vector<int> in_front;
  bool trained = false;
  for (const std::vector<LayerShare>& layers : stages) {
    int count = 0;
    for (const LayerShare& layer : layers) {
      trained |= layer.parameters > 0;
      count += trained ? 0 : 1;
    }
    in_front.push_back(count);
  }
  // If nothing is trained, there is no first one.
  if (!trained) in_front.assign(stages.size(), 0);
  return in_front;
}

bool GathersLayers(const LowerOptions& options) {
  return TraitsOf(options.data_parallel).shards_gradients &&
         HoldersOf(options) > 1 &&
         (options.data_parallel == DataParallel::kOdc ||
          options.shard_blocks == ShardBlocks::kLayer);
}

absl::Status LoweringCheck::CheckLayers() const {
  const std::string with = is_odc() ? "with strategy.data_parallel odc"
                                    : "with strategy.shard_blocks layer";
  if (!traits().shards_weights) {
    return BadValue("strategy.shard_blocks", "layer",
                    absl::StrCat("pass, run, unit with strategy.data_parallel ",
                                 traits().name));
  }
  const std::vector<std::vector<LayerShare>>& stages = options_.layers.stages;
  if (static_cast<int>(stages.size()) != schedule_.stages()) {
    return BadValue(
        "model.layers", absl::StrCat("on ", stages.size(), " stages"),
        absl::StrCat("layers on each of pp * vpp = ", schedule_.stages(),
                     " stages, ", with));
  }
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    size_t layers = 0;
    for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
      const auto& of_stage =
          stages[schedule_.placement.StageOf(rank, chunk, 0)];
      if (of_stage.empty()) {
        return BadValue("model.layers", "none on a stage",
                        absl::StrCat("1 or more on each stage, ", with));
      }
      layers += of_stage.size();
    }
    if (layers > Pass::kMaxChunks) {
      return BadValue(
          "model.layers", absl::StrCat(layers, " on a rank"),
          absl::StrCat("at most ", Pass::kMaxChunks, " on a rank, ", with));
    }
    for (const Pass pass : schedule_.order(rank)) {
      const bool copied =
          !IsComputePass(pass.kind()) && pass.kind() != PassKind::kSync;
      if (!pass.joint_with_next() && !copied) continue;
      return BadValue("schedule.name", schedule_.name,
                      absl::StrCat("one without ",
                                   copied ? "copies to the host"
                                          : "overlapped pairs of passes",
                                   ", ", with));
    }
  }
  if (never_flushes()) {
    return BadValue("schedule.name", schedule_.name,
                    absl::StrCat("one that is flushed, ", with));
  }
  const int shards = options_.layers.shard_group;
  if (options_.layers.reduces_once &&
      (is_odc() || (shards > 0 && shards != options_.replicas))) {
    return BadValue("strategy.whole_gradients", "true",
                    is_odc() ? "false with strategy.data_parallel odc"
                             : "false with a strategy.shard_group below dp");
  }
  if (options_.optimizer == OptimizerMode::kPostValidated) {
    return BadValue("strategy.optimizer", "post-validated",
                    absl::StrCat("none, synchronised ", with));
  }
  if (options_.offload.active()) {
    return BadValue("strategy.optimizer_placement",
                    TraitsOf(options_.offload.placement).name,
                    absl::StrCat("gpu ", with));
  }
  PW_RETURN_IF_ERROR(CheckPart(options_.layers.shard_group, options_.replicas,
                               "strategy.shard_group"));
  return CheckPart(options_.layers.near_group, ShardedOver(),
                   "strategy.near_group");
}

// Chunks of the order are layers from here on, those of the chunks of the
// schedule one after the other.
void LayerShards::SplitLayers() {
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    RankProgram& target = program_.ranks[rank];
    std::vector<int> first;  // [chunk] its first layer
    for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
      first.push_back(static_cast<int>(target.layers.size()));
      const int stage = schedule_.placement.StageOf(rank, chunk, 0);
      const auto layers =
          static_cast<int>(options_.layers.stages[stage].size());
      for (int layer = 0; layer < layers; ++layer) {
        target.layers.push_back(
            {.chunk = chunk, .layer = layer, .layers = layers});
      }
    }
    auto order = std::make_shared<RankOrder>();
    for (const Pass pass : *target.order) {
      if (!IsComputePass(pass.kind())) continue;
      const int begin = first[pass.chunk()];
      const int layers = target.layers[begin].layers;
      for (int step = 0; step < layers; ++step) {
        const int layer =
            LayerPart::RunsDown(pass.kind()) ? layers - 1 - step : step;
        order->push_back(
            Pass(pass.kind(), pass.microbatch(), begin + layer, pass.slice()));
      }
    }
    const std::vector<Lane> whole = std::move(target.lanes);
    target.order = std::move(order);
    const auto count = static_cast<int>(target.layers.size());
    target.lanes.assign(Pass::LaneCount(count), Lane());
    for (int chunk = 0; chunk < count; ++chunk) {
      const LayerPart& part = target.layers[chunk];
      for (const PassKind kind : kLayerKinds) {
        Lane& lane = target.lanes[Pass::LaneOf(kind, chunk, 0)];
        lane = whole[Pass::LaneOf(kind, part.chunk, 0)];
        if (lane.stage < 0) continue;
        const auto& shares = options_.layers.stages[lane.stage];
        double sum = 0;
        for (const LayerShare& share : shares) sum += share.seconds;
        lane.seconds *=
            sum > 0 ? shares[part.layer].seconds / sum : 1.0 / part.layers;
        if (!part.IsFirst(kind)) lane.input = -1;
        if (!part.IsLast(kind)) lane.output = -1;
      }
    }
  }
}

double LayerShards::BytesOf(const std::vector<double>& stages,
                            double LayerShare::*number, int rank,
                            int chunk) const {
  const LayerPart& part = program_.ranks[rank].layers[chunk];
  const int stage = schedule_.placement.StageOf(rank, part.chunk, 0);
  const auto& shares = options_.layers.stages[stage];
  double sum = 0;
  for (const LayerShare& share : shares) sum += share.*number;
  return sum > 0 ? stages[stage] * shares[part.layer].*number / sum : 0;
}

SideOp LayerShards::LayerOp(int rank, OpKind kind, int chunk, int group) const {
  const int own = program_.ranks[rank].layers[chunk].chunk;
  return {.kind = kind,
          .stream = Stream::kCollective,
          .group = group,
          .chunk = own,
          .stage = schedule_.placement.StageOf(rank, own, 0)};
}

SideOp LayerShards::GatherOf(int rank, int chunk, bool backward) const {
  const Groups& groups = groups_[rank];
  const double bytes =
      BytesOf(options_.parameter_bytes, &LayerShare::stored, rank, chunk);
  if (is_odc()) {
    SideOp op = LayerOp(rank, OpKind::kPull, chunk, -1);
    const int near = options_.layers.near_group;
    op.bytes = bytes / (near > 0 ? near : ShardedOver());
    op.peer = rank;
    op.peers = groups.pulls;
    return op;
  }
  SideOp op = LayerOp(rank, OpKind::kAllGather, chunk,
                      backward ? groups.near : groups.gather);
  op.bytes = bytes;
  return op;
}

SideOp LayerShards::ReductionOf(int rank, int chunk) const {
  const Groups& groups = groups_[rank];
  const double bytes =
      BytesOf(options_.gradient_bytes, &LayerShare::parameters, rank, chunk);
  SideOp op = LayerOp(rank, is_odc() ? OpKind::kPush : OpKind::kReduceScatter,
                      chunk, is_odc() ? -1 : groups.reduce);
  op.bytes = bytes;
  if (!options_.layers.one_stream) op.stream = Stream::kReduction;
  if (is_odc()) {
    const LayerOptions& layers = options_.layers;
    op.bytes = bytes / ShardedOver();
    op.peer = rank;
    op.peers = groups.pushes;
    // An owner sees a request half a period late on average, once for each
    // filling of the client's buffer.
    double rounds = op.bytes > 0 ? 1 : 0;
    if (layers.push_buffer_bytes > 0) {
      rounds = std::ceil(op.bytes / layers.push_buffer_bytes);
    }
    op.seconds = rounds * layers.poll_s / 2;
    if (layers.adds_bytes_per_s > 0) {
      op.parameters = op.bytes;
      op.most_per_s = layers.adds_bytes_per_s;
    }
  }
  return op;
}

LayerShards::Groups LayerShards::GroupsOf(int rank) {
  const LayerOptions& layers = options_.layers;
  const auto group = [&](int part, bool across = false, bool near = false) {
    // Parts of a context have the same shards across, and copies near by.
    const int added = across || near
                          ? AddGroup(Group::Span::kReplicas, {rank})
                          : AddHolders(Group::Span::kReplicas, {rank});
    program_.groups[added].part = part == options_.replicas ? 0 : part;
    program_.groups[added].across = across;
    return added;
  };
  Groups groups;
  groups.all = group(0);
  const int sharded = ShardedOver();
  if (is_odc()) {
    const int near = layers.near_group > 0 ? layers.near_group : sharded;
    groups.pulls = PeersOf(rank, near, /*push=*/false);
    groups.pushes = PeersOf(rank, sharded, /*push=*/true);
  } else {
    groups.gather = group(sharded);
    groups.near = groups.gather;
    if (layers.near_group > 0 && layers.near_group < sharded) {
      groups.near = group(layers.near_group, false, true);
    }
    // A group of its own, as on two streams it meets in another order.
    groups.reduce = layers.one_stream ? groups.gather : group(sharded);
  }
  if (sharded < options_.replicas) groups.across = group(sharded, true);
  if (is_odc() && options_.network.context_parallel > 1) {
    // Every part of a context has pushed gradients of its own tokens.
    if (groups.across < 0) groups.across = group(1);
    program_.groups[groups.across].contexts = true;
  }
  return groups;
}

void LayerShards::HookGathers(int rank) {
  RankProgram& target = program_.ranks[rank];
  const bool reshards = options_.layers.reshard_after_forward;
  // Until gradients are reduced once a step, no backward gives a layer up
  // either (torch/distributed/pipelining/stage.py, set_reshard_after_backward):
  // the first microbatch gathers for all.
  const bool gathers_once = !reshards && options_.layers.reduces_once;
  LaneHook gather = {.place = LaneHook::Place::kBefore,
                     .fires = reshards || gathers_once
                                  ? LaneHook::Fires::kEveryPass
                                  : LaneHook::Fires::kUnlessKept,
                     .window = kLayersGatheredAhead};
  if (gathers_once) {
    gather.every = int64_t{schedule_.microbatches} * schedule_.slices;
  }
  gather.side_ops.assign(target.lanes.size(), -1);
  gather.in_time.assign(target.lanes.size(), 0);
  const bool keeps_some = gather.fires == LaneHook::Fires::kUnlessKept;
  if (keeps_some) gather.keeps.assign(target.lanes.size(), 0);
  const Groups& groups = groups_[rank];
  const std::vector<int> in_front = LayersInFront(options_.layers.stages);
  for (int chunk = 0; chunk < static_cast<int>(target.layers.size()); ++chunk) {
    const LayerPart& part = target.layers[chunk];
    const int stage = schedule_.placement.StageOf(rank, part.chunk, 0);
    const bool flows = part.layer >= in_front[stage];
    const int32_t forward = AddSideOp(rank, GatherOf(rank, chunk, false));
    int32_t backward = forward;
    if (flows && reshards && groups.near != groups.gather) {
      backward = AddSideOp(rank, GatherOf(rank, chunk, true));
    }
    const auto hook = [&](PassKind kind, int32_t op) {
      const uint32_t lane = Pass::LaneOf(kind, chunk, 0);
      gather.side_ops[lane] = op;
      gather.in_time[lane] = target.layers[chunk].IsFirst(kind) ? 1 : 0;
      const bool keeps =
          kind == PassKind::kForward || kind == PassKind::kRecompute;
      if (keeps_some) gather.keeps[lane] = keeps && flows ? 1 : 0;
    };
    hook(PassKind::kForward, forward);
    if (!flows || gathers_once) continue;
    for (const PassKind kind : kGatheringBackwards) hook(kind, backward);
  }
  target.hooks.push_back(std::move(gather));
}

// With the last microbatch alone; the optimizer waits for them, no pass does.
void LayerShards::HookLastReductions(int rank, RankEvents* events) {
  RankProgram& target = program_.ranks[rank];
  const int32_t event = AddEvent(rank);
  LaneHook reduce = {
      .place = LaneHook::Place::kAfter,
      .every = int64_t{schedule_.microbatches} * schedule_.slices,
      .window = kReductionsBehind,
      .output = event};
  reduce.side_ops.assign(target.lanes.size(), -1);
  for (int chunk = 0; chunk < static_cast<int>(target.layers.size()); ++chunk) {
    const int32_t op = AddSideOp(rank, ReductionOf(rank, chunk));
    for (const PassKind kind : kReducingKinds) {
      reduce.side_ops[Pass::LaneOf(kind, chunk, 0)] = op;
    }
  }
  target.hooks.push_back(std::move(reduce));
  (*events)[rank].push_back(event);
}

void LayerShards::HookReductions(int rank, RankEvents* events) {
  if (options_.layers.reduces_once) {
    HookLastReductions(rank, events);
    return;
  }
  RankProgram& target = program_.ranks[rank];
  const Groups& groups = groups_[rank];
  const size_t lanes = target.lanes.size();
  const bool sums = groups.across >= 0 && !is_odc();
  LaneHook reduce = {.place = LaneHook::Place::kAfter,
                     .window = kReductionsBehind};
  reduce.side_ops.assign(lanes, -1);
  LaneHook sum = {.place = LaneHook::Place::kAfter};
  sum.side_ops.assign(lanes, -1);
  // The compute stream stands still until the last reduction of a backward.
  LaneHook end = sum;
  for (int chunk = 0; chunk < static_cast<int>(target.layers.size()); ++chunk) {
    const auto hook = [&](LaneHook& on, int32_t op) {
      for (const PassKind kind : kReducingKinds) {
        on.side_ops[Pass::LaneOf(kind, chunk, 0)] = op;
      }
    };
    SideOp last = ReductionOf(rank, chunk);
    if (sums) {
      // Over the parts, on a stream of its own where reductions have none.
      SideOp across = LayerOp(rank, OpKind::kAllReduce, chunk, groups.across);
      across.bytes = last.bytes / ShardedOver() * options_.replicas / holders();
      across.stream = Stream::kReduction;
      across.inputs = {AddEvent(rank)};
      last.outputs = across.inputs;
      hook(reduce, AddSideOp(rank, std::move(last)));
      last = std::move(across);
    }
    if (target.layers[chunk].layer == 0) {
      SideOp wait = {.chunk = target.layers[chunk].chunk,
                     .inputs = {AddEvent(rank)}};
      last.outputs = wait.inputs;
      hook(end, AddSideOp(rank, std::move(wait)));
    }
    hook(sums ? sum : reduce, AddSideOp(rank, std::move(last)));
  }
  target.hooks.push_back(std::move(reduce));
  if (sums) target.hooks.push_back(std::move(sum));
  target.hooks.push_back(std::move(end));
}

void LayerShards::Add(RankEvents* events) {
  SplitLayers();
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    groups_.push_back(GroupsOf(rank));
    if (is_odc()) AddOdcBegin(rank);
    HookGathers(rank);
    HookReductions(rank, events);
    if (is_odc()) AddOdcDrain(rank, events);
  }
}

}  // namespace pipewright
