// What must hold for any text as a Hugging Face config.json.
#pragma once

#include "absl/strings/string_view.h"

namespace pipewright::testing {

// Aborts unless reading `text` gives a model that CheckModel takes, with a
// finite number of parameters, or an error of the user's that names the file.
// Returns whether it was taken.
bool FuzzHuggingFaceConfig(absl::string_view text);

}  // namespace pipewright::testing
