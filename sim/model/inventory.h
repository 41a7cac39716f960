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
  bool IsOf(const ModelSpec& model, const TrainingSpec& training) const {
    return training_ == training && model_ == model;
  }

  // Layers with one number have the same operations: those of a kind, but where
  // some are frozen.
  int64_t ClassOf(int64_t layer) const {
    return model_.frozen_layers == 0 ? 0 : layer;
  }

  // Those of BlockOps.
  const std::vector<ModelOp>& Ops(BlockKind kind, int64_t layer) const;

 private:
  const ModelSpec model_;
  const TrainingSpec training_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<BlockKind, int64_t>, std::vector<ModelOp>> ops_;
};

}  // namespace pipewright
