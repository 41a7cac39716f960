// FLOPs by which throughput is judged: what a model needs, against what one
// device executes (ops.h). A multiply-add counts as two.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/model.h"
#include "sim/model/stages.h"
#include "sim/model/training.h"

namespace pipewright {

// FLOPs of one token of the whole model, forward and backward, nothing
// recomputed: every product of a linear layer or of attention once forward,
// once for the gradient of its input where anything before it is trained, once
// for that of its weights where they are trained. Experts count as far as a
// token meets them. `halve_causal`: causal attention counts half.
double ModelFlopsPerToken(const ModelSpec& model, int64_t sequence,
                          bool halve_causal);

// FLOPs of one token that the backward of each stage runs again.
double RecomputedFlopsPerToken(const ModelSpec& model,
                               const TrainingSpec& training,
                               const StageLayout& layout,
                               const std::vector<int>& rank_of_stage,
                               bool halve_causal);

}  // namespace pipewright
