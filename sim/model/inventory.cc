#include "sim/model/inventory.h"

#include "sim/base/find_or_make.h"

namespace pipewright {

const std::vector<ModelOp>& Inventory::Ops(BlockKind kind,
                                           int64_t layer) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return FindOrMake(
      {kind, ClassOf(layer)},
      [&] { return BlockOps(model_, training_, kind, layer); }, &ops_);
}

}  // namespace pipewright
