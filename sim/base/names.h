// Names that people type: the nearest known one for an error message.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// The member of `known` that `name` was probably meant to be, or "": what others
// call by that name ("gbs"), the same in another case, one that has it as a word
// ("h100"), one that differs by a letter, a word of it; else the one with the
// smallest edit distance (ties: the first) of at most half of the length.
std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& known);

// "unknown WHAT 'NAME'; did you mean 'NEAREST'? (known: a, b, c)", as
// kInvalidArgument.
absl::Status UnknownName(absl::string_view what, absl::string_view name,
                         const std::vector<std::string>& known);

}  // namespace pipewright
