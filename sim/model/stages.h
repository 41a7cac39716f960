// Which layers a stage holds.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/model/model.h"
#include "sim/model/ops.h"

namespace pipewright {

// A run of equal blocks.
struct StageBlock {
  BlockKind kind = BlockKind::kDenseLayer;
  int64_t first_layer = 0;  // for layers: the number in the model
  int64_t count = 1;
  // Part of a block that is spread over several stages (vocabulary
  // parallelism): 1/stages of the embedding and the head.
  double part = 1;
  LayerKind layer_kind = {};  // for layers: their parts
};

struct StageLayout {
  // [stage], in forward order.
  std::vector<std::vector<StageBlock>> stages;

  int64_t LayersOf(int stage) const;
  // "embedding, 4 layers" a line a stage; in letters if some layers have
  // other parts than attention and what is behind it (layer_kinds.h).
  std::string ToString() const;
};

// How all of the functions below put a layout together: layers in order, the
// vocabulary where `training` wants it.
class StageLayoutBuilder {
 public:
  StageLayoutBuilder(const ModelSpec& model, const TrainingSpec& training,
                     int stages);
  void AddEmbedding(int stage);  // nothing where the vocabulary is spread
  void AddLayers(int stage, int64_t count);  // the next ones
  // With an embedding, unless it is on the first stage, spread or shared.
  void AddMtp(int stage, int64_t count);
  void AddHead(int stage);
  // All layers must have been added.
  StageLayout Finish();

 private:
  const ModelSpec& model_;
  bool spread_;
  bool prediction_table_;
  int64_t next_layer_ = 0;
  StageLayout layout_;
};

// What each stage runs again: training.recompute, unless its chunk is left out
// of it. rank_of_stage[stage].
std::vector<Recompute> RecomputeOfStages(const TrainingSpec& training,
                                         const std::vector<int>& rank_of_stage);

// Those that have the table of the embedding, which a tied head on the same
// rank has no copy of. rank_of_stage[stage].
std::set<int> RanksWithTable(const StageLayout& layout,
                             const std::vector<int>& rank_of_stage);

// `layers_of_stage` layers each. Error: kInvalidArgument "strategy.layers"
// when they do not add up to the model's, or one is negative.
absl::StatusOr<StageLayout> LayoutFromCounts(
    const ModelSpec& model, const TrainingSpec& training,
    const std::vector<int64_t>& layers_of_stage);

// The same number everywhere. Error: kInvalidArgument "strategy.pp" or
// "strategy.vpp" with the nearest values that divide.
absl::StatusOr<StageLayout> EvenLayout(const ModelSpec& model,
                                       const TrainingSpec& training, int pp,
                                       int vpp);

// Megatron-LM's pipeline_model_parallel_layout: stages separated by '|', in
// them E (embedding), t (layer), m (multi-token prediction), L (loss) with
// repetitions "t*4" and "(tt|)*3". Error: kInvalidArgument
// "strategy.layout" with the position and what is allowed there.
absl::StatusOr<StageLayout> ParseLayout(const ModelSpec& model,
                                        const TrainingSpec& training,
                                        absl::string_view text, int stages);

// Contiguous split that minimises the largest sum of `weight` over a rank's
// stages (embedding and head stay at the ends unless the vocabulary is spread,
// multi-token prediction on the last stage), and is as even as possible
// beyond that. Exact where all layers weigh the same or a rank has one stage;
// else near it. A stage may hold no layer. rank_of_stage[stage].
StageLayout BalancedLayout(
    const ModelSpec& model, const TrainingSpec& training,
    const std::vector<int>& rank_of_stage,
    const std::function<double(BlockKind, int64_t layer)>& weight);

}  // namespace pipewright
