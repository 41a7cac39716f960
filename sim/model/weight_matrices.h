// The matrices of a block as an optimizer sees them: each whole on one device
// of those that hold the same part of the model, or shared by them.
//
// Megatron-LM: megatron/core/optimizer/emerging_optimizers.py (which weights
// are matrices), layer_wise_optimizer.py (who steps which).
#pragma once

#include <array>
#include <vector>

#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

// A matrix as one device has it, after tensor parallelism.
struct WeightMatrix {
  double outputs = 0;
  double inputs = 0;
  // Outputs of the parts that are orthogonalised apart; the first 0: it is one.
  std::array<double, 3> parts{};
  TensorSplit split = TensorSplit::kNone;
  bool is_expert = false;

  double elements() const { return outputs * inputs; }
  friend bool operator==(const WeightMatrix&, const WeightMatrix&) = default;
};

// Those of one op that Muon orthogonalises, experts one by one: linear layers
// that are trained, but not in the head.
std::vector<WeightMatrix> MatricesOf(const TrainingSpec& training,
                                     BlockKind block, const ModelOp& op);

// Bytes of what the optimizer keeps for an op beside master weights, before
// anything is sharded.
double StateBytes(const TrainingSpec& training, BlockKind block,
                  const ModelOp& op);

// Who of `devices` steps which matrix, each whole: buckets in the order of the
// backward, in each the largest first to the device that has least of the
// bucket.
struct MatrixOwners {
  std::vector<int> owner;    // [matrix]
  std::vector<double> held;  // [device], elements
  // Elements of the buffer that gradients and weights of all lie in, where each
  // device's part of a bucket is as long as the longest.
  double padded = 0;

  double most() const;
};
MatrixOwners OwnersOf(const std::vector<double>& elements, int devices,
                      bool one_bucket = false);

// Are all matrices of a stage in one bucket? So it is without overlapped
// reductions, and in all stages but the first (distributed_data_parallel.py).
bool HasOneBucket(const TrainingSpec& training, int stage);

// Are matrices whole on one device each?
bool IsLayerWise(const TrainingSpec& training);

}  // namespace pipewright
