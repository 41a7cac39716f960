// One end of a byte stream between two processes of a job, cut into frames.
// Does not wait. See socket_job.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Cuts a stream of bytes into frames with a tag. A frame is believed no
// further than it has come: one that claims more than kMostBytes, or a tag that
// nobody sends, ends the stream before anything is kept for it, and memory
// grows with what has come, not with what is claimed.
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

class SocketPeer {
 public:
  // `file`: a connection to process number `process`; closes it.
  SocketPeer(int process, int file) : process_(process), file_(file) {}
  ~SocketPeer();
  SocketPeer(const SocketPeer&) = delete;

  void Put(int32_t tag, const void* head, size_t head_bytes, const void* body,
           size_t body_bytes);
  // The last frame, after which silence means nothing. With an error the job
  // has ended for this process, and ends for the other with the same error.
  void Bye(const absl::Status& why);
  // Reads and writes as much as goes without waiting.
  void Pump();
  bool unsent() const { return sent_ < out_.size(); }
  // What the other end's machine has not yet: closing may throw it away.
  bool undelivered() const;
  // Nothing more comes.
  bool closed() const { return closed_ || bye_; }
  // Why the job cannot go on; ok while this process has not seen an end of the
  // other, or one in good order.
  absl::Status Loss() const;
  // The error is what the other has said, and not that it is gone.
  bool is_told() const { return bye_; }
  // Frames of `tag` that have come.
  std::deque<std::string>& frames(int32_t tag) { return reader_.frames(tag); }

 private:
  static constexpr int32_t kBye = FrameReader::kFirstTag;
  void Write();
  void Read();

  const int process_;
  const int file_;
  std::string out_;
  size_t sent_ = 0;
  FrameReader reader_;
  bool closed_ = false;
  bool said_bye_ = false;
  bool bye_ = false;
  absl::Status why_;
};

// [process]: all others that this one is connected with.
using SocketPeers = std::map<int, std::unique_ptr<SocketPeer>>;

// The first loss of any; what somebody has told goes first, as it knows more.
absl::Status FirstLoss(const SocketPeers& peers);

}  // namespace pipewright
