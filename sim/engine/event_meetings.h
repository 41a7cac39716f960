// Meetings of the members of groups in an EventRun: a collective begins when
// the last one has come, and ends for all at once.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/engine/event_traffic.h"
#include "sim/engine/event_transfers.h"
#include "sim/program/network_time.h"
#include "sim/program/program.h"

namespace pipewright {

// True if replicas meet in it.
inline bool SpansReplicas(const Program& program, const SideOp& op) {
  return IsCollective(op.kind) &&
         program.groups[op.group].span != Group::Span::kRanks;
}

class EventMeetings {
 public:
  struct Arrived {
    int32_t device = 0;
    Stream stream = Stream::kCompute;
  };

  // Adds the sources of all that meet.
  EventMeetings(const Program& program, TrafficSources* sources);

  // A member has come with `op`. Returns the number of the meeting if it was
  // the last one, so that it starts; else -1. `sources` are planned.
  int Arrive(int device, Stream stream, const SideOp& op, double ready_s,
             const TrafficSources& sources);
  // The ring or phase that it has come to; only where it shares links.
  EventTransfer Transfer(int number, double start_s,
                         const TrafficSources& sources) const;
  // That has ended. True if another phase is to follow.
  bool NextPhase(int number);
  // It is over; gives who was there. Those may come to the next one at once.
  std::vector<Arrived> End(int number);

  // Number of the meetings that a replica takes part in.
  int Of(size_t group, int replica) const {
    return first_[group] + program_.groups[group].InstanceOf(replica);
  }
  // True if what two of one group do takes as long, links aside.
  bool Alike(int number, int other) const;
  // Sources of all that may run in it, -1: none; of those that are alike in the
  // same order.
  std::vector<int> SourcesOf(int number) const;
  // Others than those for which `runs` is true never come.
  template <class Runs>
  void Expect(Runs runs) {
    for (size_t group = 0; group < program_.groups.size(); ++group) {
      const auto ranks = static_cast<int>(program_.groups[group].ranks.size());
      for (int replica = 0; replica < program_.replicas; ++replica) {
        if (!runs(replica)) meetings_[Of(group, replica)].expected -= ranks;
      }
    }
  }

  int ReplicaOf(int number) const { return meetings_[number].replica; }
  double StartOf(int number) const { return meetings_[number].start_s; }
  double EndOf(int number) const { return meetings_[number].end_s; }
  void SetEnd(int number, double end_s) { meetings_[number].end_s = end_s; }
  // What it takes alone, and whether it uses links that others use too.
  double AloneSeconds(int number) const {
    return meetings_[number].plan->seconds;
  }
  bool Shares(int number) const { return meetings_[number].shares; }
  std::vector<int> DevicesOf(int number) const;

  // Somebody waits for others of another replica, or meets them.
  bool any_open() const { return open_ > 0; }
  // Nobody comes to those before this date.
  void SetNoneBefore(double date_s) { none_before_s_ = date_s; }

 private:
  struct Plan : CollectivePlan {
    std::vector<int> sources;  // [phase], -1: no links
  };
  // Meetings of one instance of a group, one after the other.
  struct Meeting {
    int group = 0;
    int replica = 0;
    int expected = 0;
    double latest_s = 0;  // arrival so far
    double start_s = 0;
    double end_s = 0;
    bool shares = false;
    std::vector<Arrived> arrived;
    int source = -1;  // its rings
    std::map<CollectiveKey, Plan> plans;
    const Plan* plan = nullptr;  // that runs
    size_t phase = 0;
  };

  void PlanMeeting(TrafficSources* sources, Meeting* meeting);
  static int SourceOfPhase(const Meeting& meeting,
                           const std::vector<LinkLoad>& loads,
                           const TrafficSources& sources);

  const Program& program_;
  std::vector<Meeting> meetings_;
  std::vector<int> first_;  // [group]
  int open_ = 0;            // of several replicas
  double none_before_s_ = 0;
};

}  // namespace pipewright
