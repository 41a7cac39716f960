// What runs of one model under one training share: its operations, what they
// take on a device, the memory of its stages.
#pragma once

#include <memory>
#include <utility>

#include "sim/base/kept.h"
#include "sim/cost/block_prices.h"
#include "sim/memory/schedule_memory.h"
#include "sim/model/ops.h"

namespace pipewright {

class SharedModel {
 public:
  SharedModel(ModelSpec model, TrainingSpec training)
      : inventory_(std::make_shared<const Inventory>(std::move(model),
                                                     std::move(training))) {}

  const Inventory& inventory() const { return *inventory_; }
  StageMemories* memories() { return &memories_; }
  std::shared_ptr<const BlockPrices> Prices(const AnalyticOptions& options) {
    return prices_.Get(options, [&] {
      return std::make_shared<const BlockPrices>(inventory_, options);
    });
  }

 private:
  const std::shared_ptr<const Inventory> inventory_;
  StageMemories memories_;
  Memo<AnalyticOptions, const BlockPrices> prices_{8};  // devices of a sweep
};

}  // namespace pipewright
