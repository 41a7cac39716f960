#include "sim/cost/block_prices.h"

#include "sim/cost/exchange.h"

namespace pipewright {
namespace {

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
      if (pass > 0 || sum->recompute <= 0) continue;
      if (recompute != Recompute::kOpSelective) {
        const double again =
            RecomputedPart(ops[index], recompute, training.stops_early);
        if (again > 0) AddExchanges(own, again, &sum->recomputed);
        continue;
      }
      for (const OpComm& comm : ops[index].comms) {
        const double again = CommRecomputedPart(ops[index], comm, recompute);
        if (again <= 0) continue;
        ModelOp alone = ops[index];
        alone.comms = {comm};
        AddExchanges(ExchangesOf(options, training, alone, times[index],
                                 OpPass::kForward),
                     again, &sum->recomputed);
      }
    }
  }
}

}  // namespace

const std::vector<OpTime>& BlockPrices::Times(BlockKind kind,
                                              int64_t layer) const {
  return times_.Get({kind, inventory_->ClassOf(layer)}, [&] {
    return BlockTimes(inventory_->model(), inventory_->training(), options_,
                      kind, layer);
  });
}

const BlockSeconds& BlockPrices::Sum(BlockKind kind, int64_t layer,
                                     Recompute recompute) const {
  const std::vector<OpTime>& times = Times(kind, layer);
  const std::vector<ModelOp>& ops = inventory_->Ops(kind, layer);
  return sums_.Get({kind, inventory_->ClassOf(layer), recompute}, [&] {
    BlockSeconds sum = SumBlock(inventory_->training(), options_, ops, times,
                                kind, recompute);
    SumExchanges(ops, times, inventory_->training(), options_, recompute, &sum);
    return sum;
  });
}

const BlockPrices& BlockPrices::WithPower(double energy,
                                          ExchangePower exchanges) const {
  return *with_power_.Get({energy, exchanges}, [&] {
    AnalyticOptions options = options_;
    options.device.bf16_joules_per_flop *= energy;
    options.exchange_power = exchanges;
    return std::make_unique<const BlockPrices>(inventory_, std::move(options));
  });
}

}  // namespace pipewright
