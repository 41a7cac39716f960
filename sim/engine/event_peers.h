// Pulls and pushes with several peers in an EventRun: step after step, and in a
// step the flows of all peers at once.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/engine/event_traffic.h"
#include "sim/engine/event_transfers.h"
#include "sim/program/program.h"

namespace pipewright {

class PeerSteps {
 public:
  // `sources` are planned.
  PeerSteps(const Program& program, bool share_links,
            const TrafficSources& sources, const SideSources& side_sources,
            EventTransfers* transfers);

  // Begins the first step of an operation at the head of a stream.
  void Begin(int device, Stream stream, const SideOp& op, double start_s);
  // A transfer of its step has ended. True if the whole operation has, else
  // what follows has begun.
  bool End(int device, Stream stream, const SideOp& op, double end_s);

 private:
  struct State {
    int32_t step = 0;
    int32_t flying = 0;  // transfers of that step
  };

  void BeginStep(int device, Stream stream, const SideOp& op, double start_s,
                 State* state);
  void BeginFlow(const SideOp& op, int source, EventTransfer transfer);
  double AddAtOwners(int device, const SideOp& op, double seen_s);
  State& Of(int device, Stream stream) {
    return states_[device * kNumStreams + static_cast<int>(stream)];
  }

  const Program& program_;
  const bool share_links_;
  const TrafficSources& sources_;
  const SideSources& side_sources_;
  EventTransfers& transfers_;
  absl::flat_hash_map<int, State> states_;  // by device and stream
  // Dates until which owners add what they have been sent so far, by the first
  // device of their part of the replicas.
  absl::flat_hash_map<int, double> owners_free_s_;
};

}  // namespace pipewright
