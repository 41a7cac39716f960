// What must hold for any text given as a PyTorch schedule file.
#pragma once

#include "absl/strings/string_view.h"

namespace pipewright::testing {

// True where it was read; aborts where a promise is broken.
bool FuzzTorchCsv(absl::string_view content);

}  // namespace pipewright::testing
