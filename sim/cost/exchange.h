// What passes exchange inside the groups of tensor, context and expert
// parallelism: how much of their time it is, and what it sends. Engines that
// share links make traffic of it; the times of passes have it in them already.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cost/analytic.h"

namespace pipewright {

// Adds `times` as much to the entries of the same group; takes away where it is
// below 0, and leaves out what becomes nothing.
void AddExchanges(const std::vector<PassExchange>& more, double times,
                  std::vector<PassExchange>* sum);

// Returns one exchange by itself.
PassExchange ExchangeOf(const AnalyticOptions& options,
                        const TrainingSpec& training, const OpComm& comm);

// Exchanges of one pass of `op`, with the times that BlockTimes has.
std::vector<PassExchange> ExchangesOf(const AnalyticOptions& options,
                                      const TrainingSpec& training,
                                      const ModelOp& op, const OpTime& time,
                                      OpPass pass);

// [stage] those of all blocks, where nothing hides any; empty without links.
std::vector<StageExchanges> ExchangesOfStages(
    const ModelSpec& model, const TrainingSpec& training,
    const AnalyticOptions* options, const StageLayout& layout,
    const std::vector<int>& rank_of_stage);

}  // namespace pipewright
