#include "tests/support/paths.h"

#include "absl/strings/str_cat.h"

namespace pipewright::testing {

std::string SourcePath(absl::string_view path) {
  return absl::StrCat(PIPEWRIGHT_SOURCE_DIR, "/", path);
}

std::string BinaryPath() { return PIPEWRIGHT_BINARY; }

}  // namespace pipewright::testing
