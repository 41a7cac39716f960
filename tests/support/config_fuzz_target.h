// What must hold for any configuration text, used by the libFuzzer target and
// by the test that mutates a corpus.
#pragma once

#include "absl/strings/string_view.h"

namespace pipewright::testing {

// Aborts unless reading `text` in each syntax gives either a configuration
// whose sizes are in their ranges, or an error of the user's that names the
// source. Returns how many syntaxes took it.
int FuzzConfig(absl::string_view text);

}  // namespace pipewright::testing
