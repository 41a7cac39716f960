// The compute streams of all devices of an EventRun: what is next on each, its
// passes, and the transfers that hold it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/engine/event_exchanges.h"
#include "sim/engine/event_record.h"
#include "sim/engine/event_streams.h"
#include "sim/engine/event_timers.h"
#include "sim/engine/event_traffic.h"
#include "sim/engine/event_transfers.h"
#include "sim/program/compute_stream.h"
#include "sim/program/program.h"
#include "sim/program/side_sequence.h"
#include "sim/schedule/token_queue.h"

namespace pipewright {

// Transfers that hold both their ranks (WaitRule): each side posts its own, and
// they meet. A device awaits what it has posted before it posts the next.
class HeldTransfers {
 public:
  HeldTransfers(const Program& program, const EventChannels& channels,
                EventTransfers* transfers);

  // A device, now.
  struct Poster {
    int device = 0;
    int rank = 0;
    EventTransfers::Sender sender;
    double now_s = 0;
  };
  // The inputs of the block that is next have been posted.
  bool received(int device) const { return devices_[device].received; }
  void PostInputs(const Poster& who, const RankProgram& rank,
                  const Pass* block);
  // Outputs of the block that ends at `position`.
  void PostOutputs(const Poster& who, const RankProgram& rank,
                   const Pass* block, int64_t position,
                   const SideSequence& sequence);
  // What a false start leaves.
  void PostDropped(const Poster& who, const Dropped& dropped);

  // Transfers hold the device that have not ended.
  bool Holds(int device) const { return devices_[device].awaited > 0; }
  // One that holds it has ended. Posts the next if it was the last.
  void End(const Poster& who);
  // The last one that was posted.
  const Handshake& LastOf(int device) const { return devices_[device].posted; }

 private:
  struct Device {
    HoldingSteps steps;     // not posted yet
    Handshake posted{};     // the last one that was
    int32_t awaited = 0;    // posted, not ended
    bool received = false;  // the next block has its inputs
  };
  struct MeetingPoint {  // by time of posting
    TokenQueue sends;
    TokenQueue receives;
  };

  void PostNext(const Poster& who);
  void Post(const Poster& who, const Handshake& handshake);

  const Program& program_;
  const EventChannels& channels_;
  EventTransfers& transfers_;
  std::vector<MeetingPoint> points_;  // [slot of a channel]
  std::vector<Device> devices_;
};

class ComputeStreams {
 public:
  struct Device {
    Device(const DpClass& of, int32_t in_replica, int32_t at_rank)
        : own(&of),
          replica(in_replica),
          rank(at_rank),
          sequence(of.ranks[at_rank]),
          hook_ends(of.ranks[at_rank].hooks.size()) {}
    const RankProgram& program() const { return own->ranks[rank]; }
    const Pass* block() const { return program().order->data() + position; }

    const DpClass* own;
    int32_t replica;
    int32_t rank;
    int32_t iteration = 0;
    int64_t position = 0;
    SideSequence sequence;
    HookEnds hook_ends;   // in this start
    bool busy = false;    // it runs something
    bool looked = false;  // is in `to_continue_`
    bool ended = false;   // the whole run
    double clock_s = 0;   // free from here on
    // The block that runs, and what its passes take alone.
    double block_start_s = 0;
    std::array<double, 2> block_s{};
  };

  // `options`: run_ahead, as_activities.
  ComputeStreams(const Program& program, const EngineOptions& options,
                 EventChannels* channels, EventTransfers* transfers,
                 SideStreams* streams, PassExchanges* exchanges,
                 IterationEnds* iterations, EventRecord* record,
                 EventTimers* timers);

  // The device does nothing in the whole run.
  void LeaveOut(int device) { devices_[device].ended = true; }
  // Starts what can start at time 0.
  void Begin();
  // Starts what can start on one stream.
  void Continue(int device);
  // A pass may now have its inputs: ContinueAll looks.
  void Look(int device) {
    if (devices_[device].busy || devices_[device].looked) return;
    devices_[device].looked = true;
    to_continue_.push_back(device);
  }
  void ContinueAll();

  // A timer kComputeEnd: the block is over, and what follows starts.
  void EndBlock(int device, double now_s);
  // The same of one whose end was not known before.
  void EndBlockAt(int device, double end_s);
  // A timer kExchange: the next flow of the block starts.
  void BeginFlow(int device);
  void EndFlow(int device, double end_s);
  // A transfer that holds it has ended.
  void EndHold(int device, double end_s);

  // An operation attached to it begins and ends.
  void Occupy(int device) { devices_[device].busy = true; }
  void EndAttached(int device, double end_s);
  // Blocks may wait for this operation, of any stream.
  void EndHooked(int device, const IssuedOp& issued, double end_s) {
    Device& own = devices_[device];
    own.hook_ends.Push(own.sequence, issued.item, issued.start, end_s);
  }

  int size() const { return static_cast<int>(devices_.size()); }
  const Device& operator[](int device) const { return devices_[device]; }
  EventTransfers::Sender SenderOf(int device) const {
    const Device& own = devices_[device];
    return {own.replica, own.iteration, own.sequence.start().is_false};
  }
  // Null if no transfer holds a rank.
  const HeldTransfers* held() const { return holds_ ? &held_ : nullptr; }

 private:
  void BeginStart(int device, const Start& start);
  void EndStart(int device);
  bool RunItem(int device);
  bool RunBlock(int device, bool ahead);
  bool RunOther(int device);
  bool RunFree(Device& own, int device);
  bool Drop(int device);
  bool TakeInputs(int device, int parts, double* start_s);
  void NoteBlock(const Device& own, double end_s);
  void FinishBlock(int device);
  HeldTransfers::Poster PosterOf(int device) const {
    return {device, devices_[device].rank, SenderOf(device),
            devices_[device].clock_s};
  }

  const Program& program_;
  EventChannels& channels_;
  EventTransfers& transfers_;
  SideStreams& streams_;
  PassExchanges& exchanges_;
  IterationEnds& iterations_;
  EventRecord& record_;
  EventTimers& timers_;
  const bool holds_;
  // Not where something is decided by who comes first.
  const bool run_ahead_;
  const bool as_activities_;
  const bool stretches_;  // blocks may take longer than their passes alone
  bool copies_ = false;   // some device has come to an O or L
  HeldTransfers held_;
  std::vector<Device> devices_;   // [replica * pp + rank]
  std::vector<int> to_continue_;  // devices that have got something
};

}  // namespace pipewright
