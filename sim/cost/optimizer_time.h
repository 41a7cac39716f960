// The step of an optimizer that sees matrices whole: Newton-Schulz iterations
// of Muon, and what tensor parallelism exchanges for them.
#pragma once

#include <vector>

#include "sim/cost/analytic.h"
#include "sim/model/weight_matrices.h"

namespace pipewright {

// What one device does for one matrix.
struct MatrixStep {
  double flops = 0;
  double seconds = 0;   // products and exchanges
  double elements = 0;  // that it orthogonalises
};
MatrixStep OrthogonalisedBy(const AnalyticOptions& options,
                            const TrainingSpec& training,
                            const WeightMatrix& matrix);

// Matrices of a stage in the order of the model.
struct StageMatrices {
  int stage = 0;
  std::vector<WeightMatrix> matrices;
};

// Muon's step of the matrices of a rank's stages on its busiest device, without
// casts and buffers. *held: elements that this device has the states of.
double MuonSeconds(const AnalyticOptions& options, const TrainingSpec& training,
                   const std::vector<StageMatrices>& stages, double* held);

// Bytes that Muon moves at least for a parameter, clipping left out.
double LeastMuonBytes(const TrainingSpec& training);

}  // namespace pipewright
