#include "sim/base/digest.h"

#include "absl/strings/str_format.h"

namespace pipewright {

uint64_t DigestNumber(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return hash;
}

std::string Digest(absl::string_view text) {
  return absl::StrFormat("%016x", DigestNumber(text));
}

}  // namespace pipewright
