// Memory of every rank over a schedule, from the order of its passes alone:
// on one compute stream what is live depends on sequence, not on time. One
// sweep over an order, no memory for each pass.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/base/kept.h"
#include "sim/memory/stage_memory.h"
#include "sim/model/stages.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// A training framework as memory sees it: what it has on a device all the time,
// and what the passes of a stage allocate and free. Frameworks are rows of
// functions; the walk over a schedule is the same for all.

struct MemoryOptions;

// The stages of a rank, for what does not change on it.
struct RankStages {
  const Schedule& schedule;
  // Memory of the stages of all ranks, [stage].
  const std::vector<std::shared_ptr<const StageMemory>>& stages;
  const TrainingSpec& training;
  const MemoryOptions& options;
  int versions = 1;  // sets of weights (WeightVersionsOf)
  int rank = 0;
};

struct MemoryFramework {
  std::string name;
  std::string source;  // where its rules are from
  // `chunk`: index of the stage within its rank, from 0.
  std::function<StageMemory(const ModelSpec& model,
                            const TrainingSpec& training,
                            const std::vector<StageBlock>& blocks, int chunk)>
      stage;
  // All that does not change on a rank.
  std::function<MemoryBytes(const RankStages& rank)> fixed;
  // What a stage gives to the next one on the same rank is there from one pass
  // to the other; else the passes' own bytes have it.
  bool hands_over = false;
  // Beside it, what CUDA and its libraries hold of the device
  // (MemoryOptions::context_bytes).
  bool has_context = true;
  // The passes of a joint pair run one after the other; else their highest
  // points meet.
  bool pairs_in_turn = false;
};

// PyTorch with Megatron-LM and Transformer Engine (stage_memory.h). What is
// modelled unless something else is said.
std::shared_ptr<const MemoryFramework> MegatronMemory();

// Stages that runs of one model and training share, of MegatronMemory.
using StageMemories = Kept<std::shared_ptr<const StageMemory>>;

// What an optimizer on the host changes on a rank: of one device.
struct OffloadedStates {
  double resident = 1;  // share of master weights and moments on the device
  int64_t device = 0;   // buffers for those that visit it
  int64_t host = 0;
};

// What no formula tells. Bytes, share of 1.
struct MemoryOptions {
  // CUDA context, kernels and NCCL's buffers of one process: on the device,
  // but in no allocator's figures. Assumed, not measured: set it to what
  // nvidia-smi shows beyond torch.cuda.memory_reserved().
  double context_bytes = 1024.0 * 1024 * 1024;
  // What the caching allocator holds beyond its peak, as a share of the peak.
  // 0: none assumed (near that with PYTORCH_ALLOC_CONF's expandable_segments);
  // set it to max_memory_reserved / max_memory_allocated - 1.
  double fragmentation = 0;
  // Fused accumulation of weight gradients (MemoryKind::kPlaceholders).
  bool placeholders = true;
  std::vector<OffloadedStates> optimizer;  // [rank]; empty: on the device
  // Null: MegatronMemory().
  std::shared_ptr<const MemoryFramework> framework = nullptr;
  // Memories of the same model and training; null: nothing is shared.
  StageMemories* shared = nullptr;
};

struct RankMemory {
  MemoryBytes fixed;    // all the time
  MemoryBytes at_peak;  // fixed ones included
  // Where the peak is: the first such pass of the order and, in a joint pair,
  // the next one. -1: no pass, the fixed part is all.
  int64_t pass_index = -1;
  Pass pass{};
  int stage = -1;
  std::string op;  // inside the pass: "layer 3 gate-up"
  // The most that is kept between passes: kActivations at its own peak.
  int64_t peak_activations = 0;
  // Held between passes at most, as a count: over the most that one microbatch
  // through all stages of the rank, of one replica, holds between two passes.
  double peak_microbatches = 0;
  int64_t activations_at_end = 0;  // 0 wherever the order is complete
  // On the host, the most at a time: copies of activations, from their O to the
  // pass that needs them again.
  int64_t peak_host_activations = 0;
  int64_t context = 0;
  int64_t fragmentation = 0;
  // On the host, pinned: an optimizer's states and gradients.
  int64_t host_optimizer = 0;

  int64_t peak() const { return at_peak.total(); }
  // Pinned memory on the host.
  int64_t peak_host() const { return peak_host_activations + host_optimizer; }
  // What the device must have.
  int64_t needed() const { return peak() + context + fragmentation; }
};

struct ScheduleMemory {
  // [stage]; stages that are alike share one.
  std::vector<std::shared_ptr<const StageMemory>> stages;
  // The same of passes that an R runs again: with strategy.recompute none they
  // keep what full recomputation keeps. Empty if the schedule has no R.
  std::vector<std::shared_ptr<const StageMemory>> again;
  std::vector<int64_t> first_layer;  // its number in the model, [stage]
  std::vector<RankMemory> ranks;

  // The first rank that needs most.
  int WorstRank() const;
};

// `layout` has a row for each stage of the schedule.
ScheduleMemory BuildScheduleMemory(const ModelSpec& model,
                                   const TrainingSpec& training,
                                   const StageLayout& layout,
                                   const Schedule& schedule,
                                   const MemoryOptions& options);

// What the pass does to what is live (kActivations, kRecomputed). O gives its
// memory back, as where an order has no FREE; with FREE it is that which does.
// `has_recompute`: an R makes its activations again.
struct PassChange {
  int64_t activations = 0;
  int64_t recomputed = 0;
};
PassChange ChangeOf(PassKind kind, const StageMemory& stage,
                    bool has_recompute);
// Its highest point; null where it has none.
const PassMemory* PeakOf(PassKind kind, const StageMemory& stage,
                         bool has_recompute);

}  // namespace pipewright
