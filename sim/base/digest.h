// A short number for a text, the same on every machine and in every run, which
// absl::Hash is not. Against accidents, not against intent.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace pipewright {

// 16 hexadecimal digits: FNV-1a of 64 bits
// (http://www.isthe.com/chongo/tech/comp/fnv).
std::string Digest(absl::string_view text);

}  // namespace pipewright
