// A short number for a text, the same on every machine and in every run, which
// absl::Hash is not. Against accidents, not against intent.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace pipewright {

// FNV-1a of 64 bits (http://www.isthe.com/chongo/tech/comp/fnv).
uint64_t DigestNumber(absl::string_view text);

// The same as 16 hexadecimal digits.
std::string Digest(absl::string_view text);

}  // namespace pipewright
