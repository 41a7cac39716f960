// Noise on durations, drawn anew for every pass and optimizer step. Random by
// counting: a draw depends on the seed and on what it is for, not on who asks
// first, so engines and orders of evaluation agree.
//
// All values are factors on a duration whose noise-free value is the median.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/base/statistics.h"
#include "sim/schedule/pass.h"

namespace pipewright {

// The value at `probability` of quantiles at i / (n - 1), straight between
// them; 1 of none.
double QuantileAt(const std::vector<double>& quantiles, double probability);

struct Jitter {
  uint64_t seed = 0;
  // [stage][kind]: quantiles of the factor at i / (n - 1); empty: always 1.
  // The layers of a stage draw together: what slows one slows all.
  std::vector<std::array<std::vector<double>, kNumPassKinds>> passes;
  std::vector<double> optimizer;
  // In place of quantiles: lognormal, the deviation of the logarithm.
  double sigma = 0;

  // `rank` is the pipeline rank, `replica` the data-parallel one.
  double OfPass(int iteration, int replica, int rank, int stage,
                Pass pass) const;
  double OfOptimizer(int iteration, int replica, int rank) const;

  double Factor(const std::vector<double>& quantiles, double probability) const;
};

}  // namespace pipewright
