// Streams beside the passes in an EventRun: side operations, copies, and those
// who come to meetings of groups. The compute stream is among them for the
// operations that are attached to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/fifo.h"
#include "sim/engine/event_meetings.h"
#include "sim/engine/event_peers.h"
#include "sim/engine/event_timers.h"
#include "sim/engine/event_traffic.h"
#include "sim/engine/event_transfers.h"
#include "sim/program/compute_stream.h"
#include "sim/program/program.h"
#include "sim/program/side_sequence.h"

namespace pipewright {

// An operation in the queue of its stream.
struct IssuedOp {
  SideSequence::Item item;  // no side_op: the copy of `pass`
  Pass pass{};
  int32_t iteration = 0;
  int64_t start = 0;  // its device's start, when it was issued
  double ready_s = 0;
  double end_s = 0;      // if no transfer decides it
  bool running = false;  // inputs taken; under way, or at a meeting
  bool done = false;     // where others before it in the queue are not
};

class SideStreams {
 public:
  // `sources` are planned.
  SideStreams(const Program& program, bool share_links,
              const TrafficSources& sources, const SideSources& side_sources,
              EventChannels* channels, EventMeetings* meetings,
              EventTransfers* transfers, EventTimers* timers);

  // Puts an operation behind all others of its stream, and starts it if it can
  // run. True if it runs now and keeps the compute stream busy.
  bool Issue(int device, Stream stream, const IssuedOp& issued);
  // The same with what is next in the stream: its inputs may have come.
  bool Try(int device, Stream stream);
  // Takes what has ended out of its queue. `side_op`: which, where several of
  // the stream may be under way.
  IssuedOp End(int device, Stream stream, int32_t side_op, double end_s);
  // A transfer of its head with several peers has ended. True if all have.
  bool EndPeers(int device, Stream stream, double end_s);
  // A copy has ended, so that others may begin that wait for their turn.
  void EndTurn(const EventTransfer& copy, double now_s);

  bool IsIdle(int device, Stream stream) const {
    return QueueOf(device, stream).empty();
  }
  // Oldest operation of a stream that is not idle.
  const IssuedOp& Head(int device, Stream stream) const {
    return QueueOf(device, stream).front();
  }
  // An operation in which replicas meet is under way or waits for its inputs.
  bool WaitsForReplicas(int device) const;
  // Those that copies of the device move.
  HostActivations& ActivationsOf(int device) {
    return devices_[device].activations;
  }

 private:
  struct Device {
    const RankProgram* program = nullptr;
    int32_t replica = 0;
    int32_t rank = 0;
    // First in first out; of compute only what is attached.
    std::array<Fifo<IssuedOp>, kNumStreams> queues;
    std::array<double, kNumStreams> free_s{};  // free from here on
    HostActivations activations;
  };

  Fifo<IssuedOp>& QueueOf(int device, Stream stream) {
    return devices_[device].queues[static_cast<int>(stream)];
  }
  const Fifo<IssuedOp>& QueueOf(int device, Stream stream) const {
    return devices_[device].queues[static_cast<int>(stream)];
  }
  const SideOp& OpOf(int device, const IssuedOp& issued) const {
    return devices_[device].program->side_ops[issued.item.side_op];
  }

  bool TakeInputs(int device, Stream stream, IssuedOp* issued);
  void Begin(int device, Stream stream, IssuedOp* issued);
  void BeginCopy(int device, Stream stream, const IssuedOp& issued);
  void BeginOneSided(int device, Stream stream, const IssuedOp& issued);
  void BeginHostOp(int device, Stream stream, const IssuedOp& issued);
  void Arrive(int device, Stream stream, const IssuedOp& issued);
  void TryUnordered(int device, Stream stream);
  void SetSource(int source, EventTransfer* transfer) const;

  const Program& program_;
  const TrafficSources& sources_;
  const SideSources& side_sources_;
  EventChannels& channels_;
  EventMeetings& meetings_;
  EventTransfers& transfers_;
  EventTimers& timers_;
  PeerSteps peers_;
  CopyTurns turns_;
  std::vector<Device> devices_;
};

}  // namespace pipewright
