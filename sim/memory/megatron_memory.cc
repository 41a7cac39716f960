// Megatron-LM's memory of a rank: what its stages hold is in stage_memory.cc.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "sim/memory/schedule_memory.h"

namespace pipewright {
namespace {

// Scratch that kernel libraries hold: Transformer Engine's cuBLAS workspace
// (32 MiB from Hopper on; four more, one a stream, for grouped layers) and
// PyTorch's own (CUBLAS_WORKSPACE_CONFIG :4096:2:16:8).
// [framework source, bytes]
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLibraryWorkspace = 32 * kMiB + 8 * kMiB + 128 * 1024;
constexpr int64_t kGroupedWorkspace = 4 * 32 * kMiB;

// Two layers are there whole under ZeRO 3: the one that runs and the one that
// is fetched (PyTorch FSDP2, one prefetch). [framework source]
constexpr int kGatheredLayers = 2;
// One is there as it came, too, until it is copied out (PyTorch,
// _fsdp_collectives.py, foreach_all_gather_copy_out). [framework source]
constexpr int kArrivedLayers = 1;

// Elements of odc's largest buffer, and what each device of a node has of the
// kernel that reads from other nodes (sail-sg/odc: ODC_MAX_BUFFER_SIZE, chunks
// of 1 MiB). [framework source]
constexpr int64_t kBufferElements = int64_t{64} << 20;
constexpr int64_t kChunkBytes = kMiB;

// What is gathered at a time of layers that have `layer` bytes at most, of a
// head that stays (`head`), and `all` together; what pulls and pushes need.
int64_t GatheredBytes(const TrainingSpec& training, int64_t layer, int64_t head,
                      int64_t all) {
  const ShardedLayers& sharded = training.sharded;
  const bool arrives = sharded.shard_group > 0 && sharded.is_fsdp2;
  int64_t bytes = (sharded.kept ? all : kGatheredLayers * layer + head) +
                  (arrives ? kArrivedLayers * layer : 0);
  // What is kept whole is not gathered again, be it from near by.
  const bool near =
      sharded.near_group > 0 &&
      (sharded.one_sided ||
       (!sharded.kept && sharded.near_group < sharded.shard_group));
  if (near) bytes += all / sharded.near_group;
  if (!sharded.one_sided) return bytes;
  const double whole = WholeWeightBytes(training);
  const auto parameters = static_cast<double>(layer) / whole;
  const double buffered =
      std::min(parameters, static_cast<double>(kBufferElements));
  // The layer as it comes where that is to be cast, and the gradients of all
  // clients.
  const bool cast = sharded.gather_bytes != whole;
  double extra = (cast ? parameters * sharded.gather_bytes : 0) +
                 buffered * training.gradient_bytes;
  if (sharded.devices_of_node > 0) {
    extra += buffered * sharded.gather_bytes +
             static_cast<double>(sharded.devices_of_node * kChunkBytes);
  }
  return bytes + std::llround(extra);
}

// Buffers of PyTorch's stages (torch/distributed/pipelining/stage.py): of each
// microbatch what comes from the stage before (RecvInfo), whose first part the
// passes count as long as it is in flight, its gradient (a.buffer.grad, cleared
// at the next step), and what comes from the stage behind. Outputs that stay to
// the end (output_chunks): those of all stages until pull request 153383, of
// the last one until it could be told not to (165822).
int64_t BuffersOf(StageBuffers kept, const Schedule& schedule, int rank,
                  int number, int direction, const StageMemory& stage) {
  const auto microbatches =
      static_cast<int64_t>(schedule.microbatches / schedule.directions);
  int64_t in_flight = 0;
  int64_t most = 0;
  for (const Pass pass : schedule.order(rank)) {
    const bool is_here =
        pass.direction() == direction &&
        schedule.placement.StageOf(rank, pass.chunk(), direction) == number;
    if (!is_here || pass.slice() != 0) continue;
    if (pass.kind() == PassKind::kForward) most = std::max(most, ++in_flight);
    if (IsBackward(pass.kind())) --in_flight;
  }
  const bool is_last = number + 1 == schedule.stages();
  int64_t bytes = 0;
  if (number > 0) bytes += (2 * microbatches - most) * stage.boundary;
  if (!is_last) bytes += microbatches * stage.boundary;
  if (kept == StageBuffers::kReceived) return bytes;
  if (is_last) return bytes + microbatches * stage.logits;
  // Those in flight are counted by their passes.
  return kept == StageBuffers::kOutputs
             ? bytes + (microbatches - most) * stage.boundary
             : bytes;
}

// All that does not change on a rank. Both replicas of a bidirectional
// schedule have their own weights.
MemoryBytes FixedOf(const RankStages& of) {
  const Schedule& schedule = of.schedule;
  const TrainingSpec& training = of.training;
  MemoryBytes fixed;
  std::set<std::pair<int64_t, int64_t>> shapes;
  int64_t gathered = 0;
  int64_t head = 0;
  int64_t all_gathered = 0;
  int64_t layer_gradient = 0;
  int64_t whole_gradients = 0;
  bool grouped = false;
  bool sends_gradients = false;
  const bool has_buffers = training.stage_buffers != StageBuffers::kNone;
  int64_t boundary = 0;
  for (int replica = 0; replica < schedule.directions; ++replica) {
    bool has_table = false;
    MemoryBytes tied;
    for (int chunk = 0; chunk < schedule.vpp(); ++chunk) {
      const int number = schedule.placement.StageOf(of.rank, chunk, replica);
      const StageMemory& stage = *of.stages[number];
      fixed += stage.fixed;
      has_table |= stage.has_table;
      tied += stage.tied_table;
      shapes.insert(stage.weight_shapes.begin(), stage.weight_shapes.end());
      gathered = std::max(gathered, stage.gathered_layer);
      head += stage.gathered_head;
      all_gathered += stage.gathered_layers;
      whole_gradients += stage.whole_gradients;
      layer_gradient = std::max(layer_gradient, stage.layer_gradient);
      grouped |= stage.has_grouped_layers;
      boundary = std::max(boundary, stage.boundary);
      if (has_buffers) {
        fixed[MemoryKind::kBuffers] += BuffersOf(
            training.stage_buffers, schedule, of.rank, number, replica, stage);
      }
      sends_gradients |= number > 0 && schedule.placement.RankOf(
                                           number - 1, replica) != of.rank;
    }
    if (!has_table) continue;
    for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
      fixed.of[kind] -= tied.of[kind];
    }
  }
  // Pipelines that are never flushed have several versions, in the precision of
  // the passes.
  fixed[MemoryKind::kWeights] *= of.versions;
  if (of.options.placeholders &&
      (training.zero < 2 || training.shards() == 1)) {
    for (const auto& [rows, columns] : shapes) {
      fixed[MemoryKind::kPlaceholders] +=
          std::llround(training.weight_bytes * static_cast<double>(rows) *
                       static_cast<double>(columns));
    }
  }
  fixed[MemoryKind::kWorkspace] +=
      kLibraryWorkspace + (grouped ? kGroupedWorkspace : 0);
  // The gradient that was sent last stays until the next one takes its place.
  if (sends_gradients && !has_buffers) fixed[MemoryKind::kBuffers] += boundary;
  // Over one device nothing is sharded and nothing gathered.
  const bool shards = training.shards() > 1;
  if (shards && training.zero >= 3) {
    fixed[MemoryKind::kBuffers] +=
        GatheredBytes(training, gathered, head, all_gathered);
  }
  if (shards && training.zero >= 2)
    fixed[MemoryKind::kBuffers] += layer_gradient;
  if (shards && training.zero >= 3 && training.sharded.shard_group > 0 &&
      training.whole_gradients) {
    fixed[MemoryKind::kBuffers] += whole_gradients;
  }
  return fixed;
}

}  // namespace

std::shared_ptr<const MemoryFramework> MegatronMemory() {
  static const auto megatron = std::make_shared<const MemoryFramework>(
      MemoryFramework{.name = "megatron",
                      .source = "Megatron-LM on PyTorch and Transformer Engine",
                      .stage = BuildStageMemory,
                      .fixed = FixedOf});
  return megatron;
}

}  // namespace pipewright
