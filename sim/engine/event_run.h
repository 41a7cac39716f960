// One run of a Program as events in time: what an engine with shared links
// needs. It decides what starts when; a transport (SimGrid's, a test's) keeps
// the clock and shares links among flows. Latencies are timers; transfers that
// cannot contend are part of the consumer's times. A pass is none where a
// device runs ahead of the clock: its end is known when its inputs are, and
// what it sends sets timers for then.
//
// Parts: event_run.cc counts iterations and events, event_passes.cc drives the
// ranks through their passes, event_streams.cc runs what is not a pass,
// event_peers.cc what has several peers, event_transfers.cc moves bytes,
// event_beside.cc re-times what runs side by side, event_parts.cc knows which
// replicas cannot meet.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sim/base/fifo.h"
#include "sim/engine/engine.h"
#include "sim/engine/exchange_steps.h"
#include "sim/engine/interference.h"
#include "sim/engine/sharing.h"
#include "sim/engine/sharing_queue.h"
#include "sim/engine/spread.h"
#include "sim/engine/trace_writer.h"
#include "sim/program/compute_stream.h"
#include "sim/program/network_time.h"
#include "sim/program/side_sequence.h"
#include "sim/schedule/token_queue.h"

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

class EventRun {
 public:
  // `spread_peers`: as SpreadPlanner's, unless with native_flows.
  EventRun(const Program& program, const EngineOptions& options,
           int spread_peers = kSpreadPeers);

  // What flows over which links; `plans()[i].sharing` says which need them.
  const std::vector<TrafficSource>& sources() const { return sources_; }
  const std::vector<SourcePlan>& plans() const { return plans_; }
  const std::vector<SpreadPool>& pools() const { return pools_; }
  // Bytes of the largest transfer that may share a link.
  double LargestTransfer() const;

  // Starts every device at time 0. The transport must outlive the run.
  void Launch(EventTransport* transport);
  void OnTimer(uint64_t code);
  // This timer comes soon: fetches what OnTimer will look at first. Thousands
  // of devices that do the same do not fit the cache.
  void Expect(uint64_t code) const;
  void OnFlowEnd(uint32_t transfer, double now_s);

  // Parts of the replicas: those of two parts share no link with each other but
  // in collectives of several replicas. 1: nothing is known to be apart.
  int num_parts() const { return num_parts_; }
  // Part of a timer, and of what a source sends. Collectives of several
  // replicas have none.
  int PartOf(uint64_t code) const;
  int PartOfSource(int source) const;
  // The first date at which parts may meet, if all that is before `now_s` has
  // happened: each can run up to there without the others. `now_s` itself where
  // they may meet at once, or soon.
  double Horizon(double now_s) const;
  // From here on parts run one after the other, up to the horizon. Devices that
  // run ahead of the clock may come to a collective behind it.
  void BeginApart(double horizon_s) {
    apart_until_s_ = horizon_s;
    ++summary_.apart;
  }
  void EndApart() { apart_until_s_ = 0; }
  // Timers and flows so far.
  int64_t events() const { return summary_.timers + summary_.flows; }

  // After the transport has nothing left, or after Stop. Error:
  // kFailedPrecondition with the blocked operations marked.
  absl::StatusOr<RunSummary> Finish();

 private:
  enum class Event : uint64_t {
    kComputeEnd,
    kStreamEnd,
    kLatencyEnd,
    kTransferEnd,
    kMeetingEnd,
    kQueueEnd,
    kLoneEnd,
    kBesideStart,
    kBesideEnd,
    kExchange,
  };
  // A timer's code: event in 4 bits, version in 28, index in 32.
  static constexpr int kEventShift = 60;
  static constexpr uint64_t kVersionMask = (uint64_t{1} << 28) - 1;
  static uint32_t VersionOf(uint64_t code) {
    return static_cast<uint32_t>(code >> 32 & kVersionMask);
  }
  struct Issued {
    SideSequence::Item item;  // no side_op: the copy of `pass`
    Pass pass{};
    int32_t iteration = 0;
    int64_t start = 0;  // its device's start, when it was issued
    double ready_s = 0;
    double end_s = 0;      // if no transfer decides it
    int32_t step = 0;      // step of a pull or push with several peers
    int32_t flying = 0;    // transfers of that step
    bool running = false;  // inputs taken; under way, or at a meeting
    bool done = false;     // where others before it in the queue are not
  };
  struct Device {
    Device(const DpClass& of, int32_t in_replica, int32_t at_rank)
        : own(&of),
          replica(in_replica),
          rank(at_rank),
          sequence(of.ranks[at_rank]),
          hook_ends(of.ranks[at_rank].hooks.size()) {}
    const RankProgram& program() const { return own->ranks[rank]; }
    const DpClass* own;
    int32_t replica;
    int32_t rank;
    int32_t iteration = 0;
    int64_t position = 0;
    SideSequence sequence;
    HookEnds hook_ends;     // in this start
    bool busy = false;      // the compute stream runs something
    bool received = false;  // holding rules: the next block has its inputs
    bool looked = false;    // is in `to_continue_`
    bool ended = false;
    bool started = false;  // has run its first pass
    int32_t awaited = 0;   // posted transfers that hold the rank
    double clock_s = 0;    // the compute stream is free from here on
    // The block that runs, and what its passes take alone.
    double block_start_s = 0;
    std::array<double, 2> block_s{};
    // Queue of each stream, first in first out; of compute only what is
    // attached.
    std::array<Fifo<Issued>, kNumStreams> queues;
    std::array<double, kNumStreams> stream_s{};  // free from here on
    HostActivations activations;
    HoldingSteps holds;  // not posted yet
    Handshake posted{};  // the last one that was
  };
  // Bytes on their way.
  struct Transfer {
    enum class Of : uint8_t { kChannel, kStream, kRing, kExchange };
    Of of = Of::kChannel;
    int32_t index = 0;    // channel, or device, or meeting
    int32_t replica = 0;  // replica of a channel
    Stream stream = Stream::kSend;
    int32_t side_op = -1;  // for kStream, a host's
    int32_t source = -1;
    int32_t iteration = 0;
    Pass pass{};
    uint64_t key = 0;  // key of the token, in buffered transfers
    double bytes = 0;
    double start_s = 0;
    double latency_s = 0;
    double alone_s = 0;       // latency and bytes, where no link is shared
    bool takes_turn = false;  // an O or L, where those do
    bool of_peers = false;    // a part of a pull or push with several
    // Where it goes beside passes, if it does.
    enum class Beside : uint8_t { kSendRecv, kD2H, kH2D, kNone };
    Beside beside = Beside::kSendRecv;
    bool lone = false;  // timed until another one comes onto its links
    double lone_end_s = 0;
    uint32_t version = 0;  // a kLoneEnd of an older one is stale
    int32_t item = -1;     // in beside_
  };
  // Meetings of one instance of a group, one after the other.
  struct Meeting {
    int group = 0;
    int replica = 0;
    int expected = 0;
    double latest_s = 0;  // arrival so far
    double start_s = 0;
    double end_s = 0;
    bool shares = false;  // its ring uses links that others use too
    int32_t item = -1;    // in beside_
    std::vector<std::pair<int32_t, Stream>> arrived;  // device, its stream
    int source = -1;                                  // its rings
    struct Plan : CollectivePlan {
      std::vector<int> sources;  // [phase], -1: no links
    };
    std::map<CollectiveKey, Plan> plans;
    // The phases that run; null: a ring.
    const Plan* in_phases = nullptr;
    size_t phase = 0;
  };
  // What an item of beside_ is.
  struct Beside {
    enum class Of : uint8_t { kBlock, kTransfer, kMeeting } of = Of::kBlock;
    uint32_t index = 0;  // device, transfer or meeting
  };
  // The one that counts; those set before are stale.
  struct QueueTimer {
    double date_s = std::numeric_limits<double>::infinity();
    uint32_t version = 0;
  };
  struct MeetingPoint {  // where a holding transfer meets
    TokenQueue sends;
    TokenQueue receives;
  };

  // event_run.cc
  void Happen(uint64_t code);
  void Tell();
  void BeginStart(int device, const Start& start);
  void EndStart(int device);
  void Done(int iteration);
  bool BeginsAnew(int iteration) const;
  void NoteEnd(int iteration, double end_s);
  std::string Deadlock() const;

  // event_passes.cc
  void Continue(int device);
  void ContinueAll();
  bool RunItem(int device);
  bool RunBlock(int device, bool ahead);
  void EndBlock(int device);
  bool TakeBlockInputs(Device& device, const Pass* block, int parts,
                       double* start_s);
  bool Drop(int device);
  bool RunFree(Device& device, Pass pass);
  void NoteCopyWait(const Device& device, Pass pass, double start_s,
                    double end_s);
  void NoteBlock(int device, double end_s);

  // exchange_events.cc
  void PlanExchangeSources();
  void PlanExchangeSteps();
  bool RunExchanges(int device, const Pass* block, int parts);
  void BeginExchange(int device, double now_s);
  void StartExchange(int device);
  void EndExchange(int device, double end_s);

  // event_beside.cc
  void PlanBeside();
  void StartAt(double start_s, Beside::Of of, uint32_t index);
  PassMix MixOfBlock(const Device& device) const;
  std::vector<int> DevicesOf(const Transfer& transfer) const;
  void StartBeside(Beside::Of of, uint32_t index);
  void EndBeside(uint32_t item, uint32_t version);
  void LeaveBeside(int32_t* item, double now_s);

  // event_streams.cc
  void Issue(int device, Stream stream, Issued issued);
  void TryStream(int device, Stream stream);
  void TryUnordered(int device, Stream stream);
  Issued TakeEnded(int device, Stream stream, int32_t side_op);
  void Wake(int device);
  bool TakeInputs(Device& device, Stream stream, Issued& issued);
  void BeginCopy(int device, Stream stream, const Issued& issued);
  bool TakeTurn(const Transfer& copy);
  // The PCIe switches that a copy of activations crosses.
  const std::vector<LinkId>& SwitchesOf(const Transfer& copy);
  void EndTurn(const Transfer& copy, double now_s);
  void BeginOneSided(int device, Stream stream, const Issued& issued);
  void BeginPeerStep(int device, Stream stream, double start_s);
  void EndPeerTransfer(int device, Stream stream, double end_s);
  double AddAtOwners(const Device& device, const SideOp& op, double seen_s);
  void BeginHostOp(int device, Stream stream, const Issued& issued);
  // `side_op`: which, where several of the stream are under way.
  void EndStreamOp(int device, Stream stream, double start_s, double end_s,
                   int32_t side_op = -1);
  void Arrive(int device, Stream stream, const Issued& issued);
  void BeginPhase(int meeting, double start_s);
  void EndMeeting(int meeting);

  // event_traffic.cc
  void PlanTraffic();
  std::vector<double> SpacingOf(const DpClass& own) const;
  void PlanChannels();
  void PlanSideOps();
  void PlanHostOps(int device);
  void PlanPeers(int device, const SideOp& op);
  int AddSpread(const Device& device, const SideOp& op, int step);
  int SourceOfPhase(const Meeting& meeting,
                    const std::vector<LinkLoad>& loads) const;
  int AddSource(FlowBundle flows, bool overlaps_itself);
  bool Shared(int source) const {
    return source >= 0 && plans_[source].sharing != Sharing::kNone;
  }

  // event_parts.cc
  void PlanParts(const EngineOptions& options);
  bool CanBeApart(const EngineOptions& options) const;
  void FindReplicasOfSources();
  bool SpansReplicas(const SideOp& op) const;
  int ReplicaOfTransfer(uint32_t transfer) const;
  bool MayMeetNow(const Device& device) const;
  double EarliestMeeting(const Device& device, double now_s, double latest_s,
                         int* blocks) const;

  // event_transfers.cc
  void Send(int device, int32_t channel, Pass pass, double now_s);
  void Deliver(int replica, int32_t channel, uint64_t key, double arrival_s);
  void PostHolds(int device);
  void Post(int device, const Handshake& handshake);
  void Begin(const Transfer& transfer);
  void AsMeasured(uint32_t number);
  uint32_t NewTransfer(Transfer transfer);
  void Share(uint32_t transfer, double now_s);
  bool StartAlone(uint32_t transfer, double now_s);
  void LeaveLinks(uint32_t number, const Transfer& transfer);
  void EndTransfer(uint32_t transfer, double end_s);
  void EndHold(int device, double end_s);
  void SetQueueTimer(int queue);
  void OnQueueTimer(int queue, uint32_t version);

  void At(double date_s, Event event, uint64_t index, uint32_t version = 0);
  // Key of a pull or push by its index, of copies by -1 - stream.
  static uint64_t SideKey(int device, int side_op) {
    return static_cast<uint64_t>(static_cast<uint32_t>(device)) << 32 |
           static_cast<uint32_t>(side_op);
  }
  // Key of a token of `pass`. Tokens of a false start may still be on their way
  // when the same passes run again.
  static uint64_t KeyOf(const Device& device, Pass pass) {
    const uint64_t in_vain = device.sequence.start().is_false ? 1 : 0;
    return pass.key() | in_vain << 63;
  }
  int DeviceOf(int replica, int rank) const {
    return replica * program_.pp() + rank;
  }
  // Place of a replica's channel in tokens_, points_ and channel_s_.
  size_t SlotOf(int replica, int32_t channel) const {
    return static_cast<size_t>(replica) * most_channels_ + channel;
  }
  TokenQueue& Tokens(int replica, int32_t channel) {
    return tokens_[SlotOf(replica, channel)];
  }
  const Channel& ChannelOf(int replica, int32_t channel) const {
    return program_.OfReplica(replica).channels[channel];
  }

  // Keeps what is told until its iteration is over: a run that stops at the
  // end of one has begun the next.
  class IterationBuffer : public TraceSink {
   public:
    explicit IterationBuffer(TraceSink* sink) : sink_(sink) {}
    void OnOp(const TraceOp& op) override;
    void Flush(int iteration);

   private:
    TraceSink* sink_;
    std::vector<std::vector<TraceOp>> ops_;  // [iteration]
  };

  const Program& program_;
  IterationBuffer buffer_;
  TraceWriter writer_;
  EventTransport* transport_ = nullptr;
  const bool holds_;
  bool stopped_ = false;
  size_t most_channels_ = 0;          // in one replica of any class
  std::vector<Device> devices_;       // [replica * pp + rank]
  std::vector<TokenQueue> tokens_;    // [SlotOf(replica, channel)]
  std::vector<MeetingPoint> points_;  // the same, holding rules only
  std::vector<Meeting> meetings_;
  std::vector<int> first_meeting_;  // [group]
  std::vector<TrafficSource> sources_;
  std::vector<SourcePlan> plans_;                   // [source]
  std::vector<int> channel_source_;                 // as tokens_
  std::vector<double> channel_s_;                   // the same, alone
  absl::flat_hash_map<uint64_t, int> side_source_;  // by SideKey
  // By device, peers, and pull or not, of each step: one source, or one a peer.
  using PeerKey = std::tuple<int, const PeerPlan*, bool>;
  absl::flat_hash_map<PeerKey, std::vector<std::vector<int>>> peer_sources_;
  std::vector<SpreadPool> pools_;
  std::optional<SpreadPlanner> spread_;  // null: nothing is spread
  // Dates until which owners add what they have been sent so far, by the first
  // device of their part of the replicas.
  absl::flat_hash_map<int, double> owners_free_s_;
  ExchangePlans exchanges_;
  std::vector<SharingQueue> sharing_queues_;
  std::vector<QueueTimer> queue_timers_;  // [queue]
  std::vector<int> queue_of_source_;
  std::vector<Transfer> transfers_;
  std::vector<uint32_t> free_transfers_;
  bool time_lone_transfers_;
  const bool share_links_;
  // Not where something is decided by who comes first.
  const bool run_ahead_;
  std::vector<int> to_continue_;          // devices that have got something
  std::unique_ptr<Interference> beside_;  // null: nothing slows anything
  std::vector<Beside> owners_;            // [item]
  std::vector<double> expected_s_;        // [item] its end at its pace now
  struct LinkUse {
    static constexpr uint32_t kNobody = ~uint32_t{0};
    int32_t transfers = 0;
    uint32_t last = kNobody;  // that came, unless it has left
  };
  std::vector<LinkUse> link_use_;  // [link], of sources that are kFlow
  // Switches of each source, links in use, and copies that wait for theirs, if
  // copies take turns.
  std::map<int, std::vector<LinkId>> switches_of_;
  std::vector<bool> link_taken_;
  std::vector<Transfer> waiting_copies_;
  // State of parts; empty if there is one.
  int num_parts_ = 1;
  double apart_until_s_ = 0;
  int32_t open_meetings_ = 0;  // meetings of several replicas
  std::vector<int32_t> part_of_replica_;
  std::vector<int32_t> replica_of_source_;  // -1: of several
  std::vector<int32_t> replica_of_queue_;
  // [class][rank] where collectives of several replicas are attached.
  std::vector<std::vector<std::vector<int64_t>>> meets_at_;
  int64_t outstanding_ = 0;  // timers and flows that will come back
  int issued_iterations_ = 0;
  std::vector<int64_t> left_;        // [iteration] devices and operations
  std::vector<double> end_s_;        // [iteration]
  std::vector<double> first_end_s_;  // [iteration] of a compute stream
  // [iteration][device] of compute streams; empty unless they tell all.
  std::vector<std::vector<double>> ends_s_;
  RunSummary summary_;
  Progress* const progress_;
  int64_t events_ = 0;  // timers, flows and passes that it could be told of
  double all_ops_ = 0;  // in the iterations that are asked for
};

}  // namespace pipewright
