// Cuts a stream of bytes into frames with a tag. A frame is believed no
// further than it has come: one that claims more than kMostBytes, or a tag that
// nobody sends, ends the stream before anything is kept for it, and memory
// grows with what has come, not with what is claimed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"

namespace pipewright {

class FrameReader {
 public:
  struct Head {
    int32_t tag = 0;
    uint32_t magic = 0;
    uint64_t bytes = 0;
  };
  // The most that a message has (mpi/module.h).
  static constexpr uint64_t kMostBytes = std::numeric_limits<int32_t>::max();
  // The last frame of a stream, and the highest ProcessGroup::Tag.
  static constexpr int32_t kFirstTag = -1;
  static constexpr int32_t kLastTag = 3;

  static Head HeadOf(int32_t tag, uint64_t bytes);

  // What comes next. False once the stream is broken: nothing more is taken.
  bool Take(absl::string_view bytes);
  bool broken() const { return broken_; }
  // Whole frames, the first first.
  std::deque<std::string>& frames(int32_t tag) {
    return frames_[static_cast<size_t>(tag - kFirstTag)];
  }

 private:
  Head head_;
  size_t head_bytes_ = 0;  // bytes of the head that have come
  std::string body_;
  bool broken_ = false;
  std::array<std::deque<std::string>, kLastTag - kFirstTag + 1> frames_;
};

}  // namespace pipewright
