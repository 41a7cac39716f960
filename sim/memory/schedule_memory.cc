#include "sim/memory/schedule_memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/memory/weight_versions.h"

namespace pipewright {
namespace {

// Scratch that kernel libraries hold: Transformer Engine's cuBLAS workspace
// (32 MiB from Hopper on; four more, one a stream, for grouped layers) and
// PyTorch's own (CUBLAS_WORKSPACE_CONFIG :4096:2:16:8).
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLibraryWorkspace = 32 * kMiB + 8 * kMiB + 128 * 1024;
constexpr int64_t kGroupedWorkspace = 4 * 32 * kMiB;

// Two layers are there whole under ZeRO 3: the one that runs and the one that
// is fetched (PyTorch FSDP2, one prefetch).
constexpr int kGatheredLayers = 2;

std::string KeyOf(const std::vector<StageBlock>& blocks,
                  const TrainingSpec& training, const ModelSpec& model,
                  int chunk) {
  std::string key =
      training.recompute_chunks.empty()
          ? ""
          : absl::StrCat(training.recompute_chunks[chunk] ? 1 : 0);
  for (const StageBlock& block : blocks) {
    const int64_t frozen = std::clamp<int64_t>(
        model.frozen_layers - block.first_layer, 0, block.count);
    absl::StrAppend(&key, "|", static_cast<int>(block.kind), " ", block.count,
                    " ", block.part, " ", frozen, " ",
                    frozen > 0 ? block.first_layer : 0);
  }
  return key;
}

int64_t FirstLayer(const std::vector<StageBlock>& blocks) {
  for (const StageBlock& block : blocks) {
    if (block.kind != BlockKind::kEmbedding) return block.first_layer;
  }
  return 0;
}

// All that does not change on a rank. Both replicas of a bidirectional
// schedule have their own weights.
MemoryBytes FixedOf(const Schedule& schedule, const ScheduleMemory& memory,
                    const TrainingSpec& training, const MemoryOptions& options,
                    int versions, int rank) {
  MemoryBytes fixed;
  std::set<std::pair<int64_t, int64_t>> shapes;
  int64_t gathered = 0;
  int64_t layer_gradient = 0;
  bool grouped = false;
  bool sends_gradients = false;
  int64_t boundary = 0;
  for (int replica = 0; replica < schedule.replicas; ++replica) {
    bool has_table = false;
    MemoryBytes tied;
    for (int chunk = 0; chunk < schedule.vpp(); ++chunk) {
      const int number = schedule.placement.StageOf(rank, chunk, replica);
      const StageMemory& stage = *memory.stages[number];
      fixed += stage.fixed;
      has_table |= stage.has_table;
      tied += stage.tied_table;
      shapes.insert(stage.weight_shapes.begin(), stage.weight_shapes.end());
      gathered = std::max(gathered, stage.gathered_layer);
      layer_gradient = std::max(layer_gradient, stage.layer_gradient);
      grouped |= stage.has_grouped_layers;
      boundary = std::max(boundary, stage.boundary);
      sends_gradients |=
          number > 0 && schedule.placement.RankOf(number - 1, replica) != rank;
    }
    if (!has_table) continue;
    for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
      fixed.of[kind] -= tied.of[kind];
    }
  }
  // Of a pipeline that is never flushed, in the precision of the passes.
  fixed[MemoryKind::kWeights] *= versions;
  if (options.placeholders && (training.zero < 2 || training.shards() == 1)) {
    for (const auto& [rows, columns] : shapes) {
      fixed[MemoryKind::kPlaceholders] +=
          std::llround(training.weight_bytes * static_cast<double>(rows) *
                       static_cast<double>(columns));
    }
  }
  fixed[MemoryKind::kWorkspace] +=
      kLibraryWorkspace + (grouped ? kGroupedWorkspace : 0);
  // The gradient that was sent last stays until the next one takes its place.
  if (sends_gradients) fixed[MemoryKind::kBuffers] += boundary;
  // Over one device nothing is sharded and nothing gathered.
  const bool shards = training.shards() > 1;
  if (shards && training.zero >= 3) {
    fixed[MemoryKind::kBuffers] += kGatheredLayers * gathered;
  }
  if (shards && training.zero >= 2)
    fixed[MemoryKind::kBuffers] += layer_gradient;
  return fixed;
}

// The live bytes of a rank as its order is walked.
class Live {
 public:
  Live(const Schedule& schedule, const ScheduleMemory& memory, int rank)
      : schedule_(schedule),
        memory_(memory),
        rank_(rank),
        recompute_(ChunksWithRecompute(schedule, rank)) {}

  const StageMemory& StageOf(Pass pass, int* number = nullptr) const {
    const int stage =
        schedule_.placement.StageOf(rank_, pass.chunk(), pass.replica());
    if (number != nullptr) *number = stage;
    return *memory_.stages[stage];
  }
  bool HasRecompute(Pass pass) const {
    return recompute_[pass.replica() * schedule_.vpp() + pass.chunk()];
  }
  const PassMemory* Peak(Pass pass) const {
    return PeakOf(pass.kind(), StageOf(pass), HasRecompute(pass));
  }
  PassChange Change(Pass pass) const {
    return ChangeOf(pass.kind(), StageOf(pass), HasRecompute(pass));
  }
  void Apply(PassChange change) {
    activations += change.activations;
    recomputed += change.recomputed;
  }

  int64_t activations = 0;
  int64_t recomputed = 0;

 private:
  const Schedule& schedule_;
  const ScheduleMemory& memory_;
  int rank_;
  std::vector<bool> recompute_;
};

// Entries of one block: two in a joint pair, else one.
template <typename Visit>
void ForEachBlock(const RankOrder& order, const Visit& visit) {
  const int64_t size = static_cast<int64_t>(order.size());
  for (int64_t index = 0; index < size; ++index) {
    const bool joint = order[index].joint_with_next() && index + 1 < size;
    visit(index, joint ? 2 : 1);
    if (joint) ++index;
  }
}

void FindPeak(const Schedule& schedule, const ScheduleMemory& memory, int rank,
              RankMemory* out) {
  const RankOrder& order = schedule.order(rank);
  Live live(schedule, memory, rank);
  int64_t highest = 0;
  MemoryBytes inside;
  ForEachBlock(order, [&](int64_t first, int count) {
    int64_t total = live.activations + live.recomputed;
    const PassMemory* peaks[2] = {nullptr, nullptr};
    for (int nth = 0; nth < count; ++nth) {
      peaks[nth] = live.Peak(order[first + nth]);
      if (peaks[nth] != nullptr) total += peaks[nth]->peak.total();
    }
    if (total > highest) {
      highest = total;
      inside = MemoryBytes();
      inside[MemoryKind::kActivations] = live.activations;
      inside[MemoryKind::kRecomputed] = live.recomputed;
      out->pass_index = first;
      out->op = "";
      int64_t most = 0;
      for (int nth = 0; nth < count; ++nth) {
        if (peaks[nth] == nullptr) continue;
        inside += peaks[nth]->peak;
        // Of a pair, the pass that needs more is named.
        if (!out->op.empty() && peaks[nth]->peak.total() <= most) continue;
        most = peaks[nth]->peak.total();
        out->pass = order[first + nth];
        live.StageOf(out->pass, &out->stage);
        out->op = peaks[nth]->layer < 0
                      ? peaks[nth]->op
                      : absl::StrCat(
                            "layer ",
                            memory.first_layer[out->stage] + peaks[nth]->layer,
                            " ", peaks[nth]->op);
      }
    }
    for (int nth = 0; nth < count; ++nth) {
      live.Apply(live.Change(order[first + nth]));
      out->peak_activations = std::max(out->peak_activations, live.activations);
    }
  });
  out->activations_at_end = live.activations + live.recomputed;
  out->at_peak = out->fixed;
  out->at_peak += inside;
}

}  // namespace

std::vector<bool> ChunksWithRecompute(const Schedule& schedule, int rank) {
  std::vector<bool> has(static_cast<size_t>(schedule.replicas) *
                        schedule.vpp());
  for (const Pass pass : schedule.order(rank)) {
    if (pass.kind() != PassKind::kRecompute) continue;
    has[pass.replica() * schedule.vpp() + pass.chunk()] = true;
  }
  return has;
}

PassChange ChangeOf(PassKind kind, const StageMemory& stage,
                    bool has_recompute) {
  const int64_t again = has_recompute ? stage.recomputed : 0;
  switch (kind) {
    case PassKind::kForward:
    case PassKind::kLoad:
      return {.activations = stage.kept};
    case PassKind::kOffload:
      return {.activations = -stage.kept};
    case PassKind::kRecompute:
      return {.recomputed = stage.recomputed};
    case PassKind::kBackwardInput:
      return {.activations = stage.weight_part - stage.kept,
              .recomputed = -again};
    case PassKind::kBackwardFull:
      return {.activations = -stage.kept, .recomputed = -again};
    case PassKind::kBackwardWeight:
      return {.activations = -stage.weight_part};
    case PassKind::kSync:
      return {};
  }
  return {};
}

const PassMemory* PeakOf(PassKind kind, const StageMemory& stage,
                         bool has_recompute) {
  switch (kind) {
    case PassKind::kForward:
      return &stage.forward;
    case PassKind::kBackwardInput:
      return has_recompute ? &stage.backward_input_after
                           : &stage.backward_input;
    case PassKind::kBackwardFull:
      return has_recompute ? &stage.backward_full_after : &stage.backward_full;
    case PassKind::kBackwardWeight:
      return &stage.backward_weight;
    case PassKind::kRecompute:
      return &stage.recompute;
    case PassKind::kOffload:
    case PassKind::kLoad:
    case PassKind::kSync:
      return nullptr;
  }
  return nullptr;
}

int ScheduleMemory::WorstRank() const {
  int worst = 0;
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].needed() > ranks[worst].needed()) {
      worst = static_cast<int>(rank);
    }
  }
  return worst;
}

ScheduleMemory BuildScheduleMemory(const ModelSpec& model,
                                   const TrainingSpec& training,
                                   const StageLayout& layout,
                                   const Schedule& schedule,
                                   const MemoryOptions& options) {
  ScheduleMemory memory;
  std::map<std::string, std::shared_ptr<const StageMemory>> known;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int chunk = schedule.placement.ChunkOf(stage);
    const std::vector<StageBlock>& blocks = layout.stages[stage];
    auto& entry = known[KeyOf(blocks, training, model, chunk)];
    if (entry == nullptr) {
      entry = std::make_shared<const StageMemory>(
          BuildStageMemory(model, training, blocks, chunk));
    }
    memory.stages.push_back(entry);
    memory.first_layer.push_back(FirstLayer(blocks));
  }
  const std::vector<int> versions = WeightVersionsOf(schedule).versions;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    RankMemory out;
    out.fixed =
        FixedOf(schedule, memory, training, options, versions[rank], rank);
    FindPeak(schedule, memory, rank, &out);
    out.context = std::llround(options.context_bytes);
    out.fragmentation =
        std::llround(options.fragmentation * static_cast<double>(out.peak()));
    memory.ranks.push_back(std::move(out));
  }
  return memory;
}

}  // namespace pipewright
