// What the two halves of `reproduce odc` share: the models, and the port of ODC
// to MI300X (odc_port.cc). The paper's trends are odc.cc's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/config/run_config.h"
#include "sim/reproduce/paper.h"

namespace pipewright {

// Draws of a setting; all strategies of it meet the same ones.
inline constexpr int kOdcDraws = 100;

// A model of experiments/papers/odc/models.csv on so many devices of a system,
// layer by layer, in one stage, of samples that follow the law of LongAlign.
RunConfig OdcConfig(const std::string& model, const std::string& system,
                    int devices, int minibatch);

// Where `value`, which grows with its argument, is `target` between `low` and
// `high` (both above 0), to 1e-4; at_bound: it is so nowhere between them, and
// the nearer end is the result. Error: that of `value`.
struct BoundedFit {
  double at = 0;
  bool at_bound = false;
};
absl::StatusOr<BoundedFit> FitWithin(
    double low, double high, double target,
    const std::function<absl::StatusOr<double>(double)>& value);

// The port's table: compute and one-sided transfers are inferred from the
// columns of batch 16, all others follow.
absl::StatusOr<std::vector<Comparison>> ReproduceOdcPort();

}  // namespace pipewright
