// The error of estimates for whole steps: measured and published steps over the
// times of the analytic model. Curves of single kernels cannot tell that, and
// no number here is fitted to it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

struct EstimatedStep {
  std::string source;  // "megatron-table1, gpt-39.1b", as reproduce has it
  double measured = 0;
  double estimated = 0;  // in the same unit
  double ratio() const { return measured / estimated; }
};

// Of one kind of device, as `reproduce` prints them; none where no steps are
// published. `device`: a name of AllDevices.
std::vector<EstimatedStep> EstimatedSteps(absl::string_view device);

// The 90 % interval of a measured step over its estimate: Student's interval
// for one more logarithm of the ratios. Nothing with fewer than two.
struct RatioInterval {
  double low = 1;
  double high = 1;
};
std::optional<RatioInterval> EstimateError(absl::string_view device);

}  // namespace pipewright
