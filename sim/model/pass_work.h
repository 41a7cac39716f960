// How the time of a pass grows with the lengths in its microbatch: what each
// token costs, and what each pair of tokens of one sequence costs (attention).
// Sequences of one microbatch do not attend to each other.
//
// FLOPs from the inventory of operations (sim/model/ops.h); norms and
// elementwise operations count as the linear layers do.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/model.h"
#include "sim/model/packer.h"
#include "sim/model/training.h"

namespace pipewright {

// FLOPs of a sequence of s tokens: linear s + square s^2. Any unit: only ratios
// are used.
struct PassWork {
  double linear = 0;
  double square = 0;

  double At(int64_t tokens) const {
    const auto length = static_cast<double>(tokens);
    return (linear + square * length) * length;
  }
};

struct PassWorks {
  PassWork forward;
  PassWork backward_input;  // what is recomputed too
  PassWork backward_weight;

  // Every pass alike, as the packer counts a sample without a model.
  static PassWorks OfCost(const SampleCost& cost);
};

// Work of the whole model, but for the embedding, which has no FLOPs.
// `recomputed`: the part of the layers that run their forward again, 0..1.
PassWorks WorksOf(const ModelSpec& model, const TrainingSpec& training,
                  double recomputed);

// W / A of PackerCost::kFlops: weights of all linear layers but the output
// head, of experts those that a token meets, over the outputs of all query
// projections.
double WeightsOverQueries(const ModelSpec& model);

// What passes of the microbatches of one device take over those of the
// microbatch that the given, measured or estimated times are of.
struct MicrobatchFactors {
  std::vector<double> forward;  // [microbatch]
  std::vector<double> backward_input;
  std::vector<double> backward_weight;
  int64_t tokens = 0;       // all of them together
  int64_t most_tokens = 0;  // the most of one of them

  bool operator==(const MicrobatchFactors&) const = default;
};
// The base: `samples` sequences of `sequence` tokens.
MicrobatchFactors FactorsOf(const Parts& microbatches,
                            const std::vector<int64_t>& lengths,
                            const PassWorks& works, int64_t sequence,
                            int samples);

}  // namespace pipewright
