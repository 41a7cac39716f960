// The passes of one block from the times of its operations: what runs beside
// them, and the host that launches them.
#pragma once

#include <vector>

#include "sim/cost/analytic.h"
#include "sim/model/ops.h"

namespace pipewright {

// One slice of a microbatch through a block.
struct BlockSeconds {
  double passes[kNumOpPasses] = {0, 0, 0};
  double full = 0;  // B and W as one pass
  double recompute = 0;
  double saved_until_backward = 0;
  double saved_until_weight = 0;  // held gradients included
  // What of the passes, and of the forward again, is exchange.
  std::vector<PassExchange> exchanges[kNumOpPasses];
  std::vector<PassExchange> recomputed;
};

// `times`: those of BlockTimes, one for each of `ops`. Without exchanges.
BlockSeconds SumBlock(const TrainingSpec& training,
                      const AnalyticOptions& options,
                      const std::vector<ModelOp>& ops,
                      const std::vector<OpTime>& times, BlockKind kind,
                      Recompute recompute);

// What the host does for a pass of the block, graphs included.
double HostSeconds(const TrainingSpec& training, const AnalyticOptions& options,
                   const std::vector<ModelOp>& ops,
                   const std::vector<OpTime>& times, OpPass pass);

}  // namespace pipewright
