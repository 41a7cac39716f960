#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "execute/run/party.h"
#include "execute/transport/process_group.h"
#include "execute/transport/socket_peer.h"
#include "execute/transport/wire.h"
#include "sim/base/check.h"
#include "tests/fuzz/targets.h"

namespace pipewright::testing {
namespace {

// What process 1 of two has sent.
void ReadAsMessage(const std::string& frame) {
  ProcessGroup::Incoming incoming = {.from = 1, .bytes = frame.size()};
  // Not a byte behind it: a sanitizer sees who reads on.
  incoming.data = std::shared_ptr<char>(
      static_cast<char*>(std::malloc(std::max<size_t>(frame.size(), 1))),
      std::free);
  PW_CHECK(incoming.data != nullptr);
  std::memcpy(incoming.data.get(), frame.data(), frame.size());
  int64_t run = 0;
  const absl::StatusOr<RankMessage> message =
      ReadRankMessage(incoming, /*pp=*/2, &run);
  if (!message.ok()) return;
  PW_CHECK(message->from == (Address{0, 1}));
  PW_CHECK(message->index >= 0);
  PW_CHECK(message->kind <= RankMessage::Kind::kFailed);
  PW_CHECK(message->payload.on_device || message->payload.bytes < frame.size());
}

void ReadAsWord(const std::string& frame) {
  WireReader report(frame);
  report.Get<int64_t>();
  report.Get<Control>();
  report.Get<bool>();
  const RankOutcome outcome = GetOutcome(&report);
  PW_CHECK(outcome.blocked.size() + report.GetText().size() <= frame.size());
  PW_CHECK(outcome.result.ops.size() * sizeof(TraceOp) <= frame.size());
  WireReader said(frame);
  GetStatus(&said).IgnoreError();
}

}  // namespace

// The first byte says into what pieces the rest is cut.
bool FuzzFrames(absl::string_view input) {
  if (input.empty()) return false;
  const size_t piece = static_cast<uint8_t>(input.front()) + size_t{1};
  input.remove_prefix(1);
  FrameReader whole;
  whole.Take(input);
  FrameReader cut;
  for (size_t at = 0; at < input.size(); at += piece) {
    cut.Take(input.substr(at, piece));
  }
  PW_CHECK(whole.broken() == cut.broken());
  size_t frames = 0;
  size_t bytes = 0;
  for (int32_t tag = FrameReader::kFirstTag; tag <= FrameReader::kLastTag;
       ++tag) {
    PW_CHECK(whole.frames(tag) == cut.frames(tag));
    for (const std::string& frame : whole.frames(tag)) {
      ++frames;
      bytes += frame.size() + sizeof(FrameReader::Head);
      ReadAsMessage(frame);
      ReadAsWord(frame);
    }
  }
  PW_CHECK(bytes <= input.size());
  return frames > 0 && !whole.broken();
}

}  // namespace pipewright::testing
