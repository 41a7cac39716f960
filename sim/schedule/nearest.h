// The nearest sizes that a schedule accepts, for messages about a size that it
// does not.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// kInvalidArgument "FIELD: VALUE is not allowed; allowed: 4 or 8, the nearest
// (WHY)": the largest value below and the smallest one above that `works`, of
// those in 1..8*value+64.
absl::Status BadSize(absl::string_view field, int value,
                     const std::function<bool(int)>& works,
                     absl::string_view why);

}  // namespace pipewright
