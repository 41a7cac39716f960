// The timers and flows of an EventRun that are under way, whoever keeps the
// clock.
#pragma once

#include <cstdint>

namespace pipewright {

class EventTransport {
 public:
  virtual ~EventTransport() = default;
  // Calls EventRun::OnTimer(code) at `date_s`, which is not in the past.
  virtual void At(double date_s, uint64_t code) = 0;
  // Moves `bytes` with every flow of source `source` from `now_s` on, sharing
  // links, and calls EventRun::OnFlowEnd(transfer, date) when they are there.
  virtual void StartFlow(int source, double bytes, double now_s,
                         uint32_t transfer) = 0;
  // Nothing more is wanted.
  virtual void Stop() = 0;
};

// What a timer is of, and the index that its code has.
enum class EventKind : uint64_t {
  kComputeEnd,   // device
  kStreamEnd,    // device * kNumStreams + stream
  kLatencyEnd,   // transfer
  kTransferEnd,  // transfer
  kMeetingEnd,   // meeting
  kQueueEnd,     // queue of a link; of the version that was set last
  kLoneEnd,      // transfer; of the version that was set last
  kBesideStart,  // device, transfer or meeting, as the version says
  kBesideEnd,    // item of Interference; of the version that was set last
  kExchange,     // device
};

class EventTimers {
 public:
  // The transport must outlive all that is set.
  void Attach(EventTransport* transport) { transport_ = transport; }

  void At(double date_s, EventKind kind, uint64_t index, uint32_t version = 0) {
    ++timers_;
    ++outstanding_;
    transport_->At(date_s, static_cast<uint64_t>(kind) << kKindShift |
                               (version & kVersionMask) << 32 | index);
  }
  void StartFlow(int source, double bytes, double now_s, uint32_t transfer) {
    ++flows_;
    ++outstanding_;
    transport_->StartFlow(source, bytes, now_s, transfer);
  }
  // A timer or flow has come. False if nobody wants it any more.
  bool Take() {
    --outstanding_;
    return !stopped_;
  }
  void Stop() {
    stopped_ = true;
    transport_->Stop();
  }

  bool stopped() const { return stopped_; }
  int64_t timers() const { return timers_; }  // so far
  int64_t flows() const { return flows_; }    // so far
  // Those that will come back.
  int64_t outstanding() const { return outstanding_; }

  // A code: kind in 4 bits, version in 28, index in 32.
  static EventKind KindOf(uint64_t code) {
    return static_cast<EventKind>(code >> kKindShift);
  }
  static uint32_t IndexOf(uint64_t code) { return static_cast<uint32_t>(code); }
  static uint32_t VersionOf(uint64_t code) {
    return static_cast<uint32_t>(code >> 32 & kVersionMask);
  }
  // True if `version` is the one of a code.
  static bool IsVersion(uint32_t version, uint32_t of_code) {
    return (version & kVersionMask) == of_code;
  }

 private:
  static constexpr int kKindShift = 60;
  static constexpr uint64_t kVersionMask = (uint64_t{1} << 28) - 1;

  EventTransport* transport_ = nullptr;
  bool stopped_ = false;
  int64_t timers_ = 0;
  int64_t flows_ = 0;
  int64_t outstanding_ = 0;
};

}  // namespace pipewright
