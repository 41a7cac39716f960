// Where the tests find the repository and the program under test. Only
// paths.cc is compiled with these paths, so that the objects of all other
// tests are the same in every checkout and a compiler cache can share them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace pipewright::testing {

// The absolute path of `path`, relative to the repository's root.
std::string SourcePath(absl::string_view path);
// The built `pipewright`.
std::string BinaryPath();

}  // namespace pipewright::testing
