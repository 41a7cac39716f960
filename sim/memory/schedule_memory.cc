#include "sim/memory/schedule_memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/memory/live_memory.h"
#include "sim/memory/weight_versions.h"

namespace pipewright {
namespace {

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

// Walks one order and keeps its highest point.
class PeakSearch {
 public:
  PeakSearch(const Schedule& schedule, const ScheduleMemory& memory,
             const MemoryFramework& framework, int rank, RankMemory* out)
      : order_(schedule.order(rank)),
        memory_(memory),
        live_(schedule, memory, framework, rank),
        out_(*out) {}

  // Passes that begin and end together. `waiting`: bytes that the pass before
  // them in a block has for another rank.
  void Run(int64_t first, int count, int64_t waiting) {
    for (int nth = 0; nth < count; ++nth) live_.Begin(order_[first + nth]);
    int64_t total = live_.total() + waiting;
    double microbatches = live_.Microbatches();
    const PassMemory* peaks[2] = {nullptr, nullptr};
    for (int nth = 0; nth < count; ++nth) {
      const Pass pass = order_[first + nth];
      peaks[nth] = live_.Peak(pass);
      if (peaks[nth] != nullptr) total += peaks[nth]->peak.total();
      if (pass.kind() == PassKind::kForward) {
        microbatches += live_.Microbatches(pass);
      }
    }
    See(microbatches);
    if (total > highest_) {
      highest_ = total;
      Remember(first, count, peaks);
      inside_[MemoryKind::kBuffers] += waiting;
    }
    for (int nth = 0; nth < count; ++nth) {
      live_.End(order_[first + nth]);
      out_.peak_activations =
          std::max(out_.peak_activations, live_.activations);
      out_.peak_host_activations =
          std::max(out_.peak_host_activations, live_.on_host);
    }
    See(live_.Microbatches());
  }

  // A pair whose passes run one after the other allocates, for the count of
  // microbatches, at its common start all the same.
  void RunInTurn(int64_t first, int count) {
    double microbatches = live_.Microbatches();
    for (int nth = 0; nth < count; ++nth) {
      const Pass pass = order_[first + nth];
      if (pass.kind() != PassKind::kForward) continue;
      microbatches += live_.Microbatches(pass);
    }
    See(microbatches);
    int64_t waiting = 0;
    for (int nth = 0; nth < count; ++nth) {
      Run(first + nth, 1, waiting);
      waiting += live_.SentBytes(order_[first + nth]);
    }
  }

  void Finish() {
    out_.activations_at_end = live_.total();
    out_.at_peak = out_.fixed;
    out_.at_peak += inside_;
  }

 private:
  void See(double microbatches) {
    out_.peak_microbatches = std::max(out_.peak_microbatches, microbatches);
  }

  void Remember(int64_t first, int count, const PassMemory* const peaks[2]) {
    inside_ = MemoryBytes();
    inside_[MemoryKind::kActivations] = live_.activations;
    inside_[MemoryKind::kRecomputed] = live_.recomputed;
    inside_[MemoryKind::kBuffers] = live_.handed_over;
    out_.pass_index = first;
    out_.op = "";
    int64_t most = 0;
    for (int nth = 0; nth < count; ++nth) {
      if (peaks[nth] == nullptr) continue;
      inside_ += peaks[nth]->peak;
      // Names the pass of a pair that needs more.
      if (!out_.op.empty() && peaks[nth]->peak.total() <= most) continue;
      most = peaks[nth]->peak.total();
      out_.pass = order_[first + nth];
      out_.stage = live_.StageOf(out_.pass);
      out_.op = peaks[nth]->layer < 0
                    ? peaks[nth]->op
                    : absl::StrCat(
                          "layer ",
                          memory_.first_layer[out_.stage] + peaks[nth]->layer,
                          " ", peaks[nth]->op);
    }
  }

  const RankOrder& order_;
  const ScheduleMemory& memory_;
  LiveMemory live_;
  RankMemory& out_;
  int64_t highest_ = 0;
  MemoryBytes inside_;
};

void FindPeak(const Schedule& schedule, const ScheduleMemory& memory,
              const MemoryFramework& framework, int rank, RankMemory* out) {
  PeakSearch search(schedule, memory, framework, rank, out);
  ForEachBlock(schedule.order(rank), [&](int64_t first, int count) {
    if (framework.pairs_in_turn) {
      search.RunInTurn(first, count);
    } else {
      search.Run(first, count, 0);
    }
  });
  search.Finish();
}

void Offload(const OffloadedStates& states, RankMemory* out) {
  for (const MemoryKind kind : {MemoryKind::kMaster, MemoryKind::kMoments}) {
    out->fixed[kind] =
        std::llround(states.resident * static_cast<double>(out->fixed[kind]));
  }
  out->fixed[MemoryKind::kBuffers] += states.device;
  out->host_optimizer = states.host;
}

}  // namespace

std::vector<bool> ChunksWithRecompute(const Schedule& schedule, int rank) {
  std::vector<bool> has(static_cast<size_t>(schedule.directions) *
                        schedule.vpp());
  for (const Pass pass : schedule.order(rank)) {
    if (pass.kind() != PassKind::kRecompute) continue;
    has[pass.direction() * schedule.vpp() + pass.chunk()] = true;
  }
  return has;
}

PassChange ChangeOf(PassKind kind, const StageMemory& stage,
                    bool has_recompute) {
  const int64_t again = has_recompute ? stage.recomputed : 0;
  switch (kind) {
    case PassKind::kForward:
      return {.activations = stage.kept};
    case PassKind::kLoad:
      return {.activations = stage.away};
    case PassKind::kOffload:
    case PassKind::kFree:
      return {.activations = -stage.away};
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
    case PassKind::kFree:
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
  const std::shared_ptr<const MemoryFramework> framework =
      options.framework != nullptr ? options.framework : MegatronMemory();
  ScheduleMemory memory;
  StageMemories own;
  const bool shares = options.shared != nullptr && options.framework == nullptr;
  StageMemories& known = shares ? *options.shared : own;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int chunk = schedule.placement.ChunkOf(stage);
    const std::vector<StageBlock>& blocks = layout.stages[stage];
    memory.stages.push_back(
        known.Get(KeyOf(blocks, training, model, chunk), [&] {
          return std::make_shared<const StageMemory>(
              framework->stage(model, training, blocks, chunk));
        }));
    memory.first_layer.push_back(FirstLayer(blocks));
  }
  const std::vector<int> versions = WeightVersionsOf(schedule).versions;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    RankMemory out;
    out.fixed = framework->fixed({.schedule = schedule,
                                  .stages = memory.stages,
                                  .training = training,
                                  .options = options,
                                  .versions = versions[rank],
                                  .rank = rank});
    if (!options.optimizer.empty()) Offload(options.optimizer[rank], &out);
    FindPeak(schedule, memory, *framework, rank, &out);
    out.context = std::llround(options.context_bytes);
    out.fragmentation =
        std::llround(options.fragmentation * static_cast<double>(out.peak()));
    memory.ranks.push_back(std::move(out));
  }
  return memory;
}

}  // namespace pipewright
