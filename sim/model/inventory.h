// The operations of each block of one model under one training (ops.h), made
// once each. Safe for several threads; what it gives out stays as long as it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "sim/model/model.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

class Inventory {
 public:
  Inventory(ModelSpec model, TrainingSpec training)
      : model_(std::move(model)), training_(std::move(training)) {}

  const ModelSpec& model() const { return model_; }
  const TrainingSpec& training() const { return training_; }

  // Layers of a kind with one number have the same operations. BlockOps asks no
  // more of `layer`.
  int64_t ClassOf(int64_t layer) const { return model_.ClassOf(layer); }

  // Operations of BlockOps.
  const std::vector<ModelOp>& Ops(BlockKind kind, int64_t layer) const;

 private:
  const ModelSpec model_;
  const TrainingSpec training_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<BlockKind, int64_t>, std::vector<ModelOp>> ops_;
};

}  // namespace pipewright
