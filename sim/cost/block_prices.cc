#include "sim/cost/block_prices.h"

#include "sim/base/find_or_make.h"

namespace pipewright {

const std::vector<OpTime>& BlockPrices::Times(BlockKind kind,
                                              int64_t layer) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return FindOrMake(
      {kind, inventory_->ClassOf(layer)},
      [&] {
        return BlockTimes(inventory_->model(), inventory_->training(), options_,
                          kind, layer);
      },
      &times_);
}

const BlockSeconds& BlockPrices::Sum(BlockKind kind, int64_t layer,
                                     Recompute recompute) const {
  const std::vector<OpTime>& times = Times(kind, layer);
  const std::vector<ModelOp>& ops = inventory_->Ops(kind, layer);
  const std::lock_guard<std::mutex> lock(mutex_);
  return FindOrMake(
      {kind, inventory_->ClassOf(layer), recompute},
      [&] {
        return SumBlock(inventory_->training(), options_, ops, times, kind,
                        recompute);
      },
      &sums_);
}

}  // namespace pipewright
