// One run of a Program as events in time: what an engine with shared links
// needs. It decides what starts when; a transport (SimGrid's, a test's) keeps
// the clock and shares links among flows. Latencies are timers; transfers that
// cannot contend are part of the consumer's times. A pass is none where a
// device runs ahead of the clock: its end is known when its inputs are, and
// what it sends sets timers for then.
//
// With EngineOptions::as_activities there is nothing of the kind: a timer is an
// activity (ActivityOf) that ends when the transport says so.
//
// Each part owns what it has to know, and its header says what it is for:
//   planned once: event_traffic.h, event_meetings.h, event_exchanges.h, which
//   know what can send over which links; event_parts.h knows who cannot meet
//   while it runs: event_passes.h on event_streams.h on event_transfers.h, and
//   event_beside.h where things slow each other down
//   for all: event_timers.h, event_record.h
// What ends is handed here, so that none of them knows who waits for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/engine/engine.h"
#include "sim/engine/event_beside.h"
#include "sim/engine/event_exchanges.h"
#include "sim/engine/event_meetings.h"
#include "sim/engine/event_parts.h"
#include "sim/engine/event_passes.h"
#include "sim/engine/event_record.h"
#include "sim/engine/event_streams.h"
#include "sim/engine/event_timers.h"
#include "sim/engine/event_traffic.h"
#include "sim/engine/event_transfers.h"
#include "sim/engine/event_trial.h"

namespace pipewright {

class EventRun {
 public:
  EventRun(const Program& program, const EngineOptions& options,
           const EventTrial& trial = EventTrial());

  // What flows over which links; `plans()[i].sharing` says which need them.
  const std::vector<TrafficSource>& sources() const { return sources_.all(); }
  const std::vector<SourcePlan>& plans() const { return sources_.plans(); }
  const std::vector<SpreadPool>& pools() const { return sources_.pools(); }
  // Bytes of the largest transfer that may share a link.
  double LargestTransfer() const;

  // Starts every device at time 0. The transport must outlive the run.
  void Launch(EventTransport* transport);
  // `now_s`: the transport's date, which counts with as_activities.
  void OnTimer(uint64_t code, double now_s);
  // A timer will not come, since another one has taken its place.
  void Forget() { timers_.Take(); }
  // This timer comes soon: fetches what OnTimer will look at first. Thousands
  // of devices that do the same do not fit the cache.
  void Expect(uint64_t code) const;
  void OnFlowEnd(uint32_t transfer, double now_s);

  // What the transport runs from the setting of a timer to its date.
  struct Activity {
    enum class Kind : uint8_t {
      kExec,   // work of device `from`
      kDelay,  // a transfer that meets nothing
      kTimer,  // nothing: a latency, after which a flow starts
    };
    Kind kind = Kind::kTimer;
    // Devices of the program; -1: the memory of the other's host.
    int from = 0;
    int to = 0;
  };
  Activity ActivityOf(uint64_t code) const;
  // The same of a flow, or of a transfer that is timed.
  Activity ActivityOf(const EventTransfer& transfer) const;
  const EventTransfer& transfer(uint32_t number) const {
    return transfers_[number];
  }

  // Parts of the replicas: those of two parts share no link with each other but
  // in collectives of several replicas. 1: nothing is known to be apart.
  int num_parts() const { return parts_.count(); }
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
    meetings_.SetNoneBefore(horizon_s);
    parts_.CountStretch();
  }
  void EndApart() { meetings_.SetNoneBefore(0); }
  // Timers and flows so far.
  int64_t events() const { return timers_.timers() + timers_.flows(); }

  // After the transport has nothing left, or after Stop. Error:
  // kFailedPrecondition with the blocked operations marked.
  absl::StatusOr<RunSummary> Finish();

 private:
  void LeaveOutFolded();
  void Happen(uint64_t code, double now_s);
  void TellLate(uint64_t code, double now_s);
  void TellLate(const EventTransfer& transfer, double end_s);
  void EndTransfer(uint32_t number, double end_s);
  void EndChannel(const EventTransfer& transfer, double end_s);
  void Deliver(int replica, int32_t channel);
  void Wake(int device);
  void Try(int device, Stream stream) {
    if (streams_.Try(device, stream)) compute_.Occupy(device);
  }
  // `side_op`: which, where several of the stream are under way.
  void EndStreamOp(int device, Stream stream, double start_s, double end_s,
                   int32_t side_op = -1);
  void EndMeeting(int number);
  void StartBeside(BesideEvents::Owner owner);
  void EndBeside(uint32_t item, uint32_t version);
  int DeviceOf(int replica, int rank) const {
    return replica * program_.pp() + rank;
  }
  int ReplicaOf(const EventTransfer& transfer) const;
  void AddBusyTimes(RunSummary* summary) const;
  std::string Deadlock() const;
  std::string WaitingOf(int device) const;

  const Program& program_;
  const bool as_activities_;
  EventTimers timers_;
  EventRecord record_;
  // Each of the next adds sources, in this order.
  TrafficSources sources_;
  EventChannels channels_;
  SideSources side_sources_;
  EventMeetings meetings_;
  ExchangeSources exchange_sources_;
  // From here on all sources are planned.
  PassExchanges exchanges_;
  IterationEnds iterations_;
  EventTransfers transfers_;
  SideStreams streams_;
  ComputeStreams compute_;
  ReplicaParts parts_;
  std::unique_ptr<BesideEvents> beside_;  // null: nothing slows anything
};

}  // namespace pipewright
