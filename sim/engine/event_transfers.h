// Bytes on their way in an EventRun, and what they do to each other where they
// share links or take turns.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "sim/engine/event_record.h"
#include "sim/engine/event_timers.h"
#include "sim/engine/event_traffic.h"
#include "sim/engine/interference.h"
#include "sim/engine/sharing_queue.h"
#include "sim/program/op_kind.h"
#include "sim/schedule/pass.h"

namespace pipewright {

struct EventTransfer {
  // What it is of, and what `index` then is.
  enum class Of : uint8_t {
    kChannel,   // channel of `replica`
    kStreamOp,  // device: a side operation of `stream`
    kCopy,      // device: an O or L, on `stream`
    kPeers,     // device: a part of a pull or push with several, on `stream`
    kMeeting,   // meeting: its ring, or a phase of it
    kExchange,  // device: an exchange of the pass that runs
  };
  Of of = Of::kChannel;
  int32_t index = 0;
  int32_t replica = 0;
  Stream stream = Stream::kSend;
  int32_t side_op = -1;  // where several of the stream are under way
  int32_t source = -1;
  int32_t iteration = 0;
  Pass pass{};
  uint64_t key = 0;  // key of the token, in buffered transfers
  double bytes = 0;
  double start_s = 0;
  double latency_s = 0;
  double alone_s = 0;  // latency and bytes, where no link is shared
  // Where it goes beside passes; nothing: it slows none.
  std::optional<Interference::Kind> beside = Interference::Kind::kSendRecv;
};

// Transfers whose latency is over, on links that others use too: in a queue of
// their link, as flows, or timed while they are alone.
class SharedTransfers {
 public:
  // `time_lone`: EngineOptions::time_lone_transfers.
  SharedTransfers(const TrafficSources& sources, const Network& network,
                  bool time_lone, EventTimers* timers);

  void Start(uint32_t transfer, int source, double bytes, double now_s);
  // A timer kQueueEnd: the transfer that ends at *now_s, if one does.
  std::optional<uint32_t> TakeEnded(int queue, uint32_t version, double* now_s);
  // A timer kLoneEnd: when the transfer ends; nothing if it has become a flow.
  std::optional<double> LoneEnd(uint32_t transfer, uint32_t version) const;
  // One that was started has ended, or one of this source that never was.
  void Leave(uint32_t transfer, int source, double bytes);

  // -1: sources of this kind have no queue.
  int QueueOf(int source) const { return queue_of_source_[source]; }
  int num_queues() const { return static_cast<int>(queues_.size()); }
  const SharingQueue& queue(int index) const { return queues_[index]; }

 private:
  // The timer that counts; those set before are stale.
  struct QueueTimer {
    double date_s = std::numeric_limits<double>::infinity();
    uint32_t version = 0;
  };
  struct LinkUse {
    static constexpr uint32_t kNobody = ~uint32_t{0};
    int32_t transfers = 0;
    uint32_t last = kNobody;  // that came, unless it has left
  };
  // Timed until another one comes onto its links.
  struct Lone {
    bool is_lone = false;
    int32_t source = -1;
    uint32_t version = 0;  // a kLoneEnd of an older one is stale
    double end_s = 0;
  };

  bool StartAlone(uint32_t transfer, int source, double bytes, double now_s);
  void SetQueueTimer(int queue);

  const TrafficSources& sources_;
  EventTimers& timers_;
  const bool time_lone_;
  std::vector<SharingQueue> queues_;
  std::vector<QueueTimer> queue_timers_;  // [queue]
  std::vector<int> queue_of_source_;
  std::vector<LinkUse> link_use_;  // [link], of sources that are kFlow
  std::vector<Lone> lone_;         // [transfer]
};

// All transfers of a run. The owner of an ended one says what comes of it.
class EventTransfers {
 public:
  // `sources` are planned.
  EventTransfers(const Program& program, const TrafficSources& sources,
                 bool time_lone, EventChannels* channels, EventRecord* record,
                 EventTimers* timers);

  // Who sends, and in what.
  struct Sender {
    int replica = 0;
    int iteration = 0;
    bool false_start = false;
  };
  // Over a channel, from the end of the producing operation on. True if nobody
  // can be met: then the token is there, carries its arrival, and the
  // consumer's own timer does the waiting.
  bool Send(const Sender& from, int32_t channel, Pass pass, double now_s);
  // Over a channel, both sides having met.
  void BeginHeld(const Sender& from, int32_t channel, Pass pass,
                 double start_s);

  // Sets the timer for its latency or, if no link is shared, for its end.
  void Begin(const EventTransfer& transfer);
  // Has no latency: it is on its links at once.
  void BeginSharing(const EventTransfer& transfer);
  // A timer kLatencyEnd.
  void EndLatency(uint32_t number);
  // Its number is free again.
  EventTransfer End(uint32_t number);
  // Tells of the transfer of a pass, which has ended.
  void Tell(const EventTransfer& transfer, double end_s);

  const EventTransfer& operator[](uint32_t number) const {
    return transfers_[number];
  }
  // False if the transport moves it.
  bool IsTimed(const EventTransfer& transfer) const {
    return transfer.bytes == 0 || !sources_.Moves(transfer.source);
  }
  SharedTransfers& sharing() { return sharing_; }
  const SharedTransfers& sharing() const { return sharing_; }

 private:
  uint32_t Add(const EventTransfer& transfer);
  void AsMeasured(uint32_t number);
  EventTransfer OverChannel(const Sender& from, int32_t channel, Pass pass,
                            double start_s) const;

  const Program& program_;
  const TrafficSources& sources_;
  EventChannels& channels_;
  EventRecord& record_;
  EventTimers& timers_;
  SharedTransfers sharing_;
  std::vector<EventTransfer> transfers_;
  std::vector<uint32_t> free_;
};

// Copies of activations that have their PCIe switches to themselves, one after
// the other, where a program has them so (Program::copies_in_turn).
class CopyTurns {
 public:
  // `share_links`: else copies never wait.
  CopyTurns(const Program& program, bool share_links);

  // Takes the switches of a copy; what lies behind a switch, such as a root or
  // the host's memory, is shared. False: it waits for them.
  bool Take(const EventTransfer& copy);
  // The copy has ended, which took its turn: gives those that can begin now.
  std::vector<EventTransfer> End(const EventTransfer& copy, double now_s);

 private:
  const std::vector<LinkId>& SwitchesOf(const EventTransfer& copy);
  bool TakesTurn(const EventTransfer& copy) const {
    return in_turn_ && copy.source >= 0;
  }

  const Program& program_;
  const bool in_turn_;
  std::map<int, std::vector<LinkId>> switches_;  // by source
  std::vector<bool> taken_;                      // [link]
  std::vector<EventTransfer> waiting_;           // who came first goes first
};

}  // namespace pipewright
