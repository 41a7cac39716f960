// The passes of one block from the times of its operations: what runs beside
// them, and the host that launches them.
#pragma once

#include "sim/cost/analytic.h"

namespace pipewright {

// Times of one slice.
struct BlockSeconds {
  double passes[kNumOpPasses] = {0, 0, 0};
  double full = 0;  // B and W as one pass
  double recompute = 0;
  double saved_until_backward = 0;
  double saved_until_weight = 0;  // held gradients included
};

BlockSeconds SumBlock(const ModelSpec& model, const TrainingSpec& training,
                      const AnalyticOptions& options, BlockKind kind,
                      int64_t layer, Recompute recompute);

}  // namespace pipewright
