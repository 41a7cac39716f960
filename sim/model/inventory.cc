#include "sim/model/inventory.h"

namespace pipewright {

const std::vector<ModelOp>& Inventory::Ops(BlockKind kind,
                                           int64_t layer) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [known, is_new] = ops_.try_emplace({kind, ClassOf(layer)});
  if (is_new) known->second = BlockOps(model_, training_, kind, layer);
  return known->second;
}

}  // namespace pipewright
