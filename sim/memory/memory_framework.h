// A training framework as memory sees it: what it has on a device all the time,
// and what the passes of a stage allocate and free. Frameworks are rows of
// functions; the walk over a schedule (schedule_memory.h) is the same for all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/memory/stage_memory.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

struct MemoryOptions;

// The stages of a rank, for what does not change on it.
struct RankStages {
  const Schedule& schedule;
  // Memory of the stages of all ranks, [stage].
  const std::vector<std::shared_ptr<const StageMemory>>& stages;
  const TrainingSpec& training;
  const MemoryOptions& options;
  int versions = 1;  // sets of weights (weight_versions.h)
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

}  // namespace pipewright
