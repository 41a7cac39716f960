// What a verb says that takes devices and links as they are.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/config/run_config.h"

namespace pipewright {

// OK, or kInvalidArgument with the field: `verb` knows no slow devices.
absl::Status RefuseSlow(const RunConfig& config, absl::string_view verb);

}  // namespace pipewright
