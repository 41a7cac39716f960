// Which replicas of an EventRun cannot meet, and until when. Thousands of
// devices do not fit the cache; run one part after the other, those of each do.
// Of parts that do the same (event_fold.h) only the first one runs.
//
// Replicas meet on links that their transfers share and in collectives. The
// former join them into parts, once. Of the latter it is known where in the
// order of a rank they stand, and what the passes before them take at least.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/event_fold.h"
#include "sim/engine/event_traffic.h"
#include "sim/engine/event_transfers.h"
#include "sim/program/program.h"

namespace pipewright {

class ReplicaParts {
 public:
  // `sources` are planned.
  ReplicaParts(const Program& program, const EngineOptions& options,
               const TrafficSources& sources, const SharedTransfers& sharing);
  // Finds parts of a run in lock-step that do the same, and has one of them
  // run. Sources of several replicas forget the links of the others.
  void Fold(const AlikeParts::Planned& planned, TrafficSources* sources);

  // Those of two parts share no link with each other but in collectives of
  // several replicas. 1: nothing is known to be apart.
  int count() const { return meet_in_hooks_ ? 1 : count_; }
  int PartOf(int replica) const { return part_of_replica_[replica]; }
  // The replica that runs in the place of this one, or itself.
  int StandInOf(int replica) const {
    return stand_ins_.empty() ? replica : stand_ins_[replica];
  }
  bool Runs(int replica) const { return StandInOf(replica) == replica; }
  // Part of a link's queue; any part if several replicas use it.
  int PartOfQueue(int queue) const {
    return PartOf(std::max(0, replica_of_queue_[queue]));
  }

  // How far a device is.
  struct Place {
    int replica = 0;
    int rank = 0;
    int iteration = 0;
    int64_t position = 0;
    int64_t end = 0;     // of this start, in the order
    double clock_s = 0;  // its compute stream is free from here on
    bool busy = false;   // the entry at `position` runs
    bool ended = false;  // the whole run
    bool meets = false;  // waits for other replicas, or for what comes before
  };
  // The first date at which parts may meet, if all that is before `now_s` has
  // happened; place(device) says how far each is. `now_s` itself where that is
  // at once, or soon.
  template <class PlaceOf>
  double Horizon(double now_s, int devices, PlaceOf place) const {
    double horizon_s = std::numeric_limits<double>::infinity();
    int blocks = 0;
    for (int device = 0; device < devices && horizon_s > now_s; ++device) {
      int own_blocks = 0;
      const double date_s =
          EarliestMeeting(place(device), now_s, horizon_s, &own_blocks);
      if (date_s >= horizon_s) continue;
      horizon_s = date_s;
      blocks = own_blocks;
    }
    return blocks < kLeastBlocks ? now_s : std::max(now_s, kRoom * horizon_s);
  }

  // Stretches that parts ran one after the other.
  void CountStretch() { ++stretches_; }
  int64_t stretches() const { return stretches_; }

 private:
  // Blocks up to the horizon that make it worth while to run parts apart, and
  // those that are looked at: each draws its jitter.
  static constexpr int kLeastBlocks = 8;
  static constexpr int kMostBlocks = 32;
  // Rounding of a sum of times.
  static constexpr double kRoom = 1 - 1e-9;

  bool CanBeApart(const EngineOptions& options,
                  const TrafficSources& sources) const;
  bool MeetInHooks() const;
  void FindParts(const TrafficSources& sources, const SharedTransfers& sharing);
  void FindMeetings();
  double EarliestMeeting(const Place& place, double now_s, double latest_s,
                         int* blocks) const;

  const Program& program_;
  int count_ = 1;
  bool meet_in_hooks_ = false;  // then they do so all the time
  // Empty if there is one part.
  std::vector<int> part_of_replica_;
  std::vector<int> part_of_link_;          // -1: of none
  std::vector<int32_t> replica_of_queue_;  // -1: none alone
  std::vector<int> stand_ins_;             // [replica]; empty: all run
  // [class][rank] where collectives of several replicas are attached.
  std::vector<std::vector<std::vector<int64_t>>> meets_at_;
  int64_t stretches_ = 0;
};

}  // namespace pipewright
