// The balanced split of a model on ranks that differ in speed.
#pragma once

#include <functional>
#include <vector>

#include "sim/model/stages.h"

namespace pipewright {

// As that of stages.h, for ranks that take slowness[rank] times as long: the
// largest product of that and a rank's sum is minimised. Empty: 1 for each.
StageLayout BalancedLayout(
    const ModelSpec& model, const TrainingSpec& training,
    const std::vector<int>& rank_of_stage,
    const std::function<double(BlockKind, int64_t layer)>& weight,
    std::vector<double> slowness);

}  // namespace pipewright
