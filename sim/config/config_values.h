// The values of a configuration, from the message (typed fields) to RunConfig
// (fields within their ranges).
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/config/run_config.h"

namespace pipewright {

// Fills every field of `config` that `root` has; origins and source are there
// already. Error: the first value that its field does not take, with where it
// was given and what is allowed.
absl::Status ReadFields(const google::protobuf::Message& root,
                        RunConfig* config);

// What a number at `path` may be, "an integer from 1 to 65536"; "" for a path
// that takes no bare number.
std::string NumbersAt(absl::string_view path);

}  // namespace pipewright
