#include "execute/transport/nccl_party.h"

#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

constexpr int64_t kPartOfMemory = 8;
constexpr int64_t kBuffers = 2;
// Fewer bytes would say nothing about the bandwidth.
constexpr int64_t kLeastBytes = 1 << 16;

}  // namespace

int64_t TransferRoom(int64_t wanted, int64_t free_bytes) {
  int64_t bytes = wanted;
  while (bytes > free_bytes / kPartOfMemory / kBuffers) bytes /= 2;
  return bytes < kLeastBytes ? 0 : bytes;
}

absl::Status NoTransferRoom(int64_t free_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("buffers for transfers: ", free_bytes,
                   " bytes are free on the fullest GPU, and they may take an "
                   "eighth of that; they need ",
                   kBuffers * kLeastBytes));
}

}  // namespace pipewright
