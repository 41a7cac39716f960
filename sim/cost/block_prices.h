// What the blocks of a model take on a device: the part of the analytic cost
// model that runs of one model and training share.
#pragma once

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/base/kept.h"
#include "sim/cost/analytic.h"
#include "sim/model/ops.h"

namespace pipewright {

// One block: its passes from the times of its operations, what runs beside
// them, and the host that launches them.

// One slice of a microbatch through a block.
struct BlockSeconds {
  double passes[kNumOpPasses] = {0, 0, 0};
  double full = 0;  // B and W as one pass
  double recompute = 0;
  double joules[kNumOpPasses] = {0, 0, 0};  // above the idle power's
  double recompute_joules = 0;
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

// Prices of a model's blocks, made once each. Safe for several threads; what it
// gives out stays as long as it.
class BlockPrices {
 public:
  BlockPrices(std::shared_ptr<const Inventory> inventory,
              AnalyticOptions options)
      : inventory_(std::move(inventory)), options_(std::move(options)) {}

  const Inventory& inventory() const { return *inventory_; }
  const AnalyticOptions& options() const { return options_; }

  // Times of BlockTimes, one an op.
  const std::vector<OpTime>& Times(BlockKind kind, int64_t layer) const;
  const BlockSeconds& Sum(BlockKind kind, int64_t layer,
                          Recompute recompute) const;
  // On the same device with so many times the energy of a FLOP, and with that
  // power of exchanges; made once.
  const BlockPrices& WithPower(double energy, ExchangePower exchanges) const;

 private:
  const std::shared_ptr<const Inventory> inventory_;
  const AnalyticOptions options_;
  mutable Kept<std::vector<OpTime>, std::pair<BlockKind, int64_t>> times_;
  mutable Kept<BlockSeconds, std::tuple<BlockKind, int64_t, Recompute>> sums_;
  mutable Kept<std::unique_ptr<const BlockPrices>,
               std::pair<double, ExchangePower>>
      with_power_;
};

// Costs as in analytic.h.
PassCosts AnalyticCosts(const BlockPrices& prices, const StageLayout& layout,
                        const std::vector<int>& rank_of_stage);

// The optimizer step of the slowest rank. With 2 `directions` each rank
// updates the stages of both: its own and those of the rank opposite.
double AnalyticOptimizerSeconds(const BlockPrices& prices,
                                const StageLayout& layout,
                                const std::vector<int>& rank_of_stage,
                                int directions);

// Parameters as in analytic.h.
double MostUpdatedParameters(const Inventory& inventory,
                             const StageLayout& layout,
                             const std::vector<int>& rank_of_stage,
                             int directions);

}  // namespace pipewright
