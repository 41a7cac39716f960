#include "execute/transport/socket_peer.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace pipewright {
namespace {

constexpr uint32_t kMagic = 0x50574a31;  // "PWJ1": the streams are in step
constexpr size_t kReadBytes = size_t{1} << 20;

}  // namespace

SocketPeer::~SocketPeer() { ::close(file_); }

void SocketPeer::Put(int32_t tag, const void* head, size_t head_bytes,
                     const void* body, size_t body_bytes) {
  if (closed()) return;
  const Head frame = {
      .tag = tag, .magic = kMagic, .bytes = head_bytes + body_bytes};
  out_.append(reinterpret_cast<const char*>(&frame), sizeof(frame));
  out_.append(static_cast<const char*>(head), head_bytes);
  if (body_bytes > 0) out_.append(static_cast<const char*>(body), body_bytes);
  Write();
}

void SocketPeer::Write() {
  while (!closed_ && unsent()) {
    const ssize_t wrote =
        ::send(file_, out_.data() + sent_, out_.size() - sent_,
               MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      // What the other has said before it went is still to be read.
      if (errno != EAGAIN && errno != EWOULDBLOCK) sent_ = out_.size();
      break;
    }
    sent_ += static_cast<size_t>(wrote);
  }
  if (!unsent()) {
    out_.clear();
    sent_ = 0;
  }
}

void SocketPeer::Read() {
  while (!closed_) {
    const size_t had = in_.size();
    in_.resize(had + kReadBytes);
    const ssize_t got =
        ::recv(file_, in_.data() + had, kReadBytes, MSG_DONTWAIT);
    const int error = errno;
    in_.resize(had + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got > 0) continue;
    if (got < 0 && error == EINTR) continue;
    if (got == 0 || (error != EAGAIN && error != EWOULDBLOCK)) closed_ = true;
    break;
  }
}

void SocketPeer::Cut() {
  while (in_.size() - cut_ >= sizeof(Head)) {
    Head frame;
    std::memcpy(&frame, in_.data() + cut_, sizeof(frame));
    if (frame.magic != kMagic) {
      closed_ = true;
      break;
    }
    if (in_.size() - cut_ - sizeof(frame) < frame.bytes) break;
    cut_ += sizeof(frame);
    if (frame.tag == kBye) bye_ = true;
    frames_[frame.tag].push_back(
        in_.substr(cut_, static_cast<size_t>(frame.bytes)));
    cut_ += static_cast<size_t>(frame.bytes);
  }
  in_.erase(0, cut_);
  cut_ = 0;
}

void SocketPeer::Pump() {
  Write();
  Read();
  Cut();
}

}  // namespace pipewright
