#include "execute/transport/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pipewright {
namespace {

constexpr uint32_t kFrameMagic = 0x50574a31;  // "PWJ1": streams are in step

}  // namespace

FrameReader::Head FrameReader::HeadOf(int32_t tag, uint64_t bytes) {
  return {.tag = tag, .magic = kFrameMagic, .bytes = bytes};
}

bool FrameReader::Take(absl::string_view bytes) {
  while (!bytes.empty() && !broken_) {
    if (head_bytes_ < sizeof(head_)) {
      const size_t some = std::min(sizeof(head_) - head_bytes_, bytes.size());
      std::memcpy(reinterpret_cast<char*>(&head_) + head_bytes_, bytes.data(),
                  some);
      head_bytes_ += some;
      bytes.remove_prefix(some);
      if (head_bytes_ < sizeof(head_)) break;
      broken_ = head_.magic != kFrameMagic || head_.bytes > kMostBytes ||
                head_.tag < kFirstTag || head_.tag > kLastTag;
      if (broken_) break;
    }
    const size_t some =
        std::min<size_t>(head_.bytes - body_.size(), bytes.size());
    body_.append(bytes.data(), some);
    bytes.remove_prefix(some);
    if (body_.size() < head_.bytes) break;
    frames(head_.tag).push_back(std::move(body_));
    body_.clear();
    head_bytes_ = 0;
  }
  return !broken_;
}

}  // namespace pipewright
