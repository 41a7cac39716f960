#include "sim/base/digest.h"

#include <cstdint>

#include "absl/strings/str_format.h"

namespace pipewright {

std::string Digest(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return absl::StrFormat("%016x", hash);
}

}  // namespace pipewright
