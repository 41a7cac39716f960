// What sharded weights cost passes besides: copies between the layers and the
// buffers that are gathered and reduced, and collectives beside them.
#include <algorithm>
#include <utility>

#include "sim/cost/contention.h"
#include "sim/cost/exchange.h"
#include "sim/program/lowering.h"
#include "sim/program/network_time.h"

namespace pipewright {
namespace {

constexpr bool ReducesBehind(PassKind kind) {
  return kind == PassKind::kBackwardWeight || kind == PassKind::kBackwardFull;
}

constexpr bool GathersBefore(PassKind kind) {
  return kind == PassKind::kForward || kind == PassKind::kRecompute ||
         kind == PassKind::kBackwardInput || kind == PassKind::kBackwardFull;
}

// Rates of these copies over that of a stream, on an H100 with a layer of
// llama3-8b, in 8 and in 128 parts (experiments/torch_layers, steps.py).
// [measured]
constexpr double kOutOfGathered = 0.89;
// The same of gradients in 2 and in 4 bytes, which go into 4
// (experiments/torch_layers, steps.py). [measured]
constexpr double kIntoReductionCast = 0.65;
constexpr double kIntoReduction = 0.94;

}  // namespace

// What a pass exchanges stays what it is: for each second of it there is less.
void PassLengthening::Lengthen(double seconds, Lane* lane) {
  const double before_s = lane->seconds;
  lane->seconds += seconds;
  if (lane->exchanges < 0 || seconds <= 0) return;
  const double factor = before_s / lane->seconds;
  const auto [known, is_new] =
      lengthened_.try_emplace({lane->exchanges, factor}, -1);
  if (is_new) {
    LaneExchanges scaled = {.pieces =
                                program_.exchanges[lane->exchanges].pieces};
    AddExchanges(program_.exchanges[lane->exchanges].each, factor,
                 &scaled.each);
    known->second = static_cast<int32_t>(program_.exchanges.size());
    program_.exchanges.push_back(std::move(scaled));
  }
  lane->exchanges = known->second;
}

// As replica 0 has it, alone on the network.
double PassLengthening::CollectiveSeconds(const SideOp& op) {
  if (!IsCollective(op.kind) || op.bytes <= 0) return 0;
  const auto [known, is_new] =
      collective_s_.try_emplace({op.group, CollectiveKeyOf(op)}, 0.0);
  if (is_new) {
    known->second =
        PlanCollective(program_, op,
                       GroupMembers(program_, program_.groups[op.group], 0))
            .seconds;
  }
  return known->second;
}

// FSDP2 (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py) copies what
// it has gathered into the parameters (split_with_sizes_copy), and gradients
// into the buffer of the reduction, in its type (chunk_cat). Both run on the
// compute stream and read and write all bytes. What it does to its own shard
// runs on other streams. With reductions once a step it adds up whole gradients
// in their type meanwhile (FSDPParam, to_accumulated_grad_if_needed and
// accumulate_unsharded_grad_if_needed), and layers stay gathered for all
// microbatches.
double PassLengthening::LayerCopySeconds(const LayerShards& shards, int rank,
                                         int chunk, PassKind kind) const {
  const LayerOptions& layers = options_.layers;
  if (layers.copies_bytes_per_s <= 0 || is_odc()) return 0;
  const double passes =
      static_cast<double>(schedule_.microbatches) * schedule_.slices;
  double bytes = 0;
  // A group of one gathers nothing.
  if (GathersBefore(kind) && layers.shard_group != 1) {
    const double gathered = shards.BytesOf(options_.parameter_bytes,
                                           &LayerShare::stored, rank, chunk);
    const bool forward = kind == PassKind::kForward;
    double copied = 0;
    if (layers.reshard_after_forward) {
      copied = 2 * gathered;
    } else if (forward) {
      copied = 2 * gathered / (layers.reduces_once ? passes : 1);
    }
    bytes += copied / kOutOfGathered;
  }
  if (ReducesBehind(kind)) {
    const double reduced = shards.BytesOf(options_.gradient_bytes,
                                          &LayerShare::parameters, rank, chunk);
    const double made = layers.made_part;
    if (layers.reduces_once) {
      // The first one is cast, the others are added, the sum is copied.
      bytes += reduced *
               ((made + 1) + (passes - 1) * (made + 2) + 2 / kIntoReduction) /
               passes;
    } else {
      bytes += reduced * (made + 1) /
               (made < 1 ? kIntoReductionCast : kIntoReduction);
    }
  }
  return bytes / layers.copies_bytes_per_s;
}

// Layers of a pass are alike, so that beside each runs a gather as long as its
// own, of the next one; and beside a backward the reduction of the one before.
// Nothing runs beside the gather in front of a pass and the reduction behind
// it.
void PassLengthening::LengthenLayers(const LayerShards& shards) {
  if (is_odc()) return;
  const LayerOptions& layers = options_.layers;
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    RankProgram& target = program_.ranks[rank];
    const std::vector<int> in_front = LayersInFront(layers.stages);
    for (size_t index = 0; index < target.lanes.size(); ++index) {
      Lane& lane = target.lanes[index];
      const PassKind kind = Pass::KindOf(index);
      if (lane.stage < 0 || !IsComputePass(kind)) continue;
      const int chunk = static_cast<int>(index / kNumPassKinds / 2);
      const LayerPart& part = target.layers[chunk];
      const bool flows = part.layer >= in_front[lane.stage];
      if (!flows && kind != PassKind::kForward) continue;
      const double copy_s = LayerCopySeconds(shards, rank, chunk, kind);
      if (options_.contention <= 1) {
        Lengthen(copy_s, &lane);
        continue;
      }
      double beside_s = 0;
      // Without resharding every forward gathers as long as every backward
      // reduces.
      const bool gathers = layers.reshard_after_forward ||
                           (kind == PassKind::kForward && !layers.reduces_once);
      if (GathersBefore(kind) && gathers && !part.IsFirst(kind)) {
        const bool backward = kind != PassKind::kForward;
        beside_s += CollectiveSeconds(shards.GatherOf(rank, chunk, backward));
      }
      if (ReducesBehind(kind) && !layers.reduces_once && !part.IsLast(kind)) {
        beside_s += CollectiveSeconds(shards.ReductionOf(rank, chunk));
      }
      Lengthen(copy_s + ContentionSeconds(options_.contention,
                                          lane.seconds + copy_s, beside_s),
               &lane);
    }
  }
}

// The same of whole passes, where each has collectives of its own.
void PassLengthening::LengthenPasses() {
  if (options_.contention <= 1 || options_.shard_blocks != ShardBlocks::kPass) {
    return;
  }
  for (RankProgram& target : program_.ranks) {
    std::vector<double> beside_s(target.lanes.size(), 0);
    for (const LaneHook& hook : target.hooks) {
      for (size_t index = 0; index < hook.side_ops.size(); ++index) {
        if (hook.side_ops[index] < 0) continue;
        beside_s[index] +=
            CollectiveSeconds(target.side_ops[hook.side_ops[index]]);
      }
    }
    for (size_t index = 0; index < target.lanes.size(); ++index) {
      Lane& lane = target.lanes[index];
      if (lane.stage < 0) continue;
      Lengthen(
          ContentionSeconds(options_.contention, lane.seconds, beside_s[index]),
          &lane);
    }
  }
}

}  // namespace pipewright
