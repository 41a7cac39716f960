// What some editors put in front of a text in UTF-8. ReadFile and InputFile
// leave it out, so that no reader meets it.
#pragma once

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Of the mark that a file begins with, in bytes; 0 without one.
inline size_t ByteOrderMarkSize(absl::string_view file) {
  constexpr absl::string_view kMark = "\xef\xbb\xbf";
  return absl::StartsWith(file, kMark) ? kMark.size() : 0;
}

}  // namespace pipewright
