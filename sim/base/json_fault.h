// What is wrong with a text that does not parse as JSON, and on which line; in
// json.cc, which sees nlohmann for all.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// kInvalidArgument, "SOURCE:LINE: not JSON: ..."; OK where it is JSON.
absl::Status JsonFault(absl::string_view text, absl::string_view source);

// The message of an exception of nlohmann's parser without its own name and
// place: "not JSON: syntax error while ...".
std::string JsonFaultOf(absl::string_view message);

}  // namespace pipewright
