// Names that people type: the nearest known one for an error message.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// The member of `known` with the smallest edit distance to `name` (ties: the
// first), or "" when none is closer than half of its length.
std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& known);

// "unknown WHAT 'NAME'; did you mean 'NEAREST'? (known: a, b, c)", as
// kInvalidArgument.
absl::Status UnknownName(absl::string_view what, absl::string_view name,
                         const std::vector<std::string>& known);

}  // namespace pipewright
