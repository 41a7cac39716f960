#include "execute/transport/socket_peer.h"

#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/transport/wire.h"

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

namespace {

constexpr size_t kReadBytes = size_t{1} << 16;
// In a row, so that one who never stops does not hold up the others.
constexpr int kMostReads = 64;

}  // namespace

SocketPeer::~SocketPeer() { ::close(file_); }

void SocketPeer::Put(int32_t tag, const void* head, size_t head_bytes,
                     const void* body, size_t body_bytes) {
  if (closed() || said_bye_) return;
  const FrameReader::Head frame =
      FrameReader::HeadOf(tag, head_bytes + body_bytes);
  out_.append(reinterpret_cast<const char*>(&frame), sizeof(frame));
  out_.append(static_cast<const char*>(head), head_bytes);
  if (body_bytes > 0) out_.append(static_cast<const char*>(body), body_bytes);
  Write();
}

void SocketPeer::Bye(const absl::Status& why) {
  WireWriter writer;
  writer.Put(static_cast<int32_t>(why.code()));
  writer.PutText(why.message());
  Put(kBye, writer.bytes().data(), writer.bytes().size(), nullptr, 0);
  said_bye_ = true;
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
  char bytes[kReadBytes];
  for (int reads = 0; !closed_ && reads < kMostReads;) {
    const ssize_t got = ::recv(file_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    closed_ = got <= 0 || !reader_.Take({bytes, static_cast<size_t>(got)});
    ++reads;
  }
  if (bye_ || frames(kBye).empty()) return;
  bye_ = true;
  WireReader reader(frames(kBye).front());
  const auto code = static_cast<absl::StatusCode>(reader.Get<int32_t>());
  if (code == absl::StatusCode::kOk) return;
  why_ = absl::Status(code == absl::StatusCode::kInvalidArgument
                          ? code
                          : absl::StatusCode::kUnavailable,
                      reader.GetText());
}

void SocketPeer::Pump() {
  Write();
  Read();
}

bool SocketPeer::undelivered() const {
  int bytes = 0;
  return !closed_ &&
         (unsent() || (::ioctl(file_, SIOCOUTQ, &bytes) == 0 && bytes > 0));
}

absl::Status SocketPeer::Loss() const {
  if (bye_ || !closed_) return why_;
  return absl::UnavailableError(
      absl::StrCat("process ", process_, " of the job ",
                   reader_.broken() ? "has sent what no process of a job sends"
                                    : "is gone without a word"));
}

absl::Status FirstLoss(const SocketPeers& peers) {
  absl::Status loss;
  for (const auto& [process, peer] : peers) {
    if (peer->is_told()) loss.Update(peer->Loss());
  }
  for (const auto& [process, peer] : peers) loss.Update(peer->Loss());
  return loss;
}

}  // namespace pipewright
