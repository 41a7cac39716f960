// The search that `reproduce odc` infers a machine with.
#pragma once

#include <functional>

#include "absl/status/statusor.h"

namespace pipewright::odc {

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

}  // namespace pipewright::odc
