// One end of a byte stream between two processes of a job, cut into frames
// with a tag. Does not wait. See socket_job.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace pipewright {

class SocketPeer {
 public:
  explicit SocketPeer(int file) : file_(file) {}
  ~SocketPeer();
  SocketPeer(const SocketPeer&) = delete;

  // The tag of the last frame, after which silence means nothing.
  static constexpr int32_t kBye = -1;

  void Put(int32_t tag, const void* head, size_t head_bytes, const void* body,
           size_t body_bytes);
  // Reads and writes as much as goes without waiting.
  void Pump();
  bool unsent() const { return sent_ < out_.size(); }
  // The other end has gone without its last frame.
  bool gone() const { return closed_ && !bye_; }
  bool closed() const { return closed_ || bye_; }
  // Frames of `tag` that have come.
  std::deque<std::string>& frames(int32_t tag) { return frames_[tag]; }

 private:
  struct Head {
    int32_t tag = 0;
    uint32_t magic = 0;
    uint64_t bytes = 0;
  };
  void Write();
  void Read();
  void Cut();

  const int file_;
  std::string out_;
  size_t sent_ = 0;
  std::string in_;
  size_t cut_ = 0;
  bool closed_ = false;
  bool bye_ = false;
  std::map<int32_t, std::deque<std::string>> frames_;
};

}  // namespace pipewright
