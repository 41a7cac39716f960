#include "sim/cost/block_prices.h"

#include "sim/base/find_or_make.h"
#include "sim/cost/exchange.h"

namespace pipewright {
namespace {

BlockSeconds SumBlock(const std::vector<ModelOp>& ops,
                      const std::vector<OpTime>& times, BlockKind kind,
                      Recompute recompute) {
  BlockSeconds sum;
  const bool is_layer =
      kind != BlockKind::kEmbedding && kind != BlockKind::kHead;
  bool runs_backward = false;
  for (size_t index = 0; index < ops.size(); ++index) {
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      const double seconds =
          times[index].seconds[pass] + times[index].comm_seconds[pass];
      sum.passes[pass] += seconds;
      runs_backward |= pass > 0 && seconds > 0;
    }
    if (is_layer && IsRecomputed(ops[index], recompute)) {
      sum.recompute += times[index].seconds[0] + times[index].comm_seconds[0];
    }
    sum.saved_until_backward += ops[index].saved_until_backward;
    sum.saved_until_weight +=
        ops[index].saved_until_weight + ops[index].held_for_weight;
  }
  if (!runs_backward) sum.recompute = 0;
  return sum;
}

void SumExchanges(const std::vector<ModelOp>& ops,
                  const std::vector<OpTime>& times,
                  const TrainingSpec& training, const AnalyticOptions& options,
                  Recompute recompute, BlockSeconds* sum) {
  for (size_t index = 0; index < ops.size(); ++index) {
    if (ops[index].comms.empty()) continue;
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      const std::vector<PassExchange> own =
          ExchangesOf(options, training, ops[index], times[index],
                      static_cast<OpPass>(pass));
      AddExchanges(own, 1, &sum->exchanges[pass]);
      const bool again = pass == 0 && sum->recompute > 0 &&
                         IsRecomputed(ops[index], recompute);
      if (again) AddExchanges(own, 1, &sum->recomputed);
    }
  }
}

}  // namespace

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
        BlockSeconds sum = SumBlock(ops, times, kind, recompute);
        SumExchanges(ops, times, inventory_->training(), options_, recompute,
                     &sum);
        return sum;
      },
      &sums_);
}

}  // namespace pipewright
