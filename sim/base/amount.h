// Limits of the amounts that people give. The ends are far beyond any machine,
// and near enough that no sum, product or quotient of amounts leaves the range
// of a double.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/base/quantity.h"

namespace pipewright {

// 0, or from least to most.
struct AmountRange {
  double least;
  double most;
};
AmountRange RangeOf(Unit unit);

// Error: kInvalidArgument that quotes `text`, for a value that RangeOf(unit)
// does not have. It does not name the field.
absl::Status CheckAmount(double value, absl::string_view text, Unit unit);

}  // namespace pipewright
