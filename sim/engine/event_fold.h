// Which parts of the replicas of an EventRun do the same as another part. In
// lock-step, where passes take what they take, a part does what another one
// does whose transfers meet alike on links of its own that are as fast, and
// that comes to the same collectives. Then one of them runs, and its times are
// those of both.
//
// A ring over the links of many parts turns at the pace of its slowest edge: if
// these are alike it is enough to look at those of the parts that run.
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "sim/topology/cluster.h"

namespace pipewright {

class EventChannels;
class EventMeetings;
class PassExchanges;
class TrafficSources;
struct Program;

class AlikeParts {
 public:
  // What is known of a run beforehand. All must outlive it.
  struct Planned {
    const Program& program;
    const TrafficSources& sources;
    const EventChannels& channels;
    const EventMeetings& meetings;
    const PassExchanges& exchanges;
  };
  // [replica] and [link], -1 if a link is of no part.
  AlikeParts(const Planned& planned, const std::vector<int>& part_of_replica,
             const std::vector<int>& part_of_link);

  // [replica] the one that runs in its place, or itself.
  const std::vector<int>& stand_ins() const { return stand_ins_; }
  // [link] true if only replicas use it that do not run, or rings over them.
  const std::vector<bool>& idle_links() const { return idle_links_; }

 private:
  struct LoadOfPart {
    int part = 0;
    int link = 0;  // number of the link in its part
    double flows = 0;
    friend auto operator<=>(const LoadOfPart&, const LoadOfPart&) = default;
  };
  // Meetings of one part and the same of another, both ways.
  struct Pairs {
    std::map<int, int> of_one;
    std::map<int, int> of_other;
  };

  void NumberLinks();
  bool AreAlike(int part, int other) const;
  bool ReplicasAlike(int replica, int other) const;
  bool SourcesAlike(int source, int other) const;
  bool SameLink(LinkId link, LinkId other) const;
  bool MeetingsAlike(int part, int other) const;
  bool MeetingAlike(int number, int other, int part, int other_part) const;
  std::vector<LoadOfPart> LoadsIn(int source, int part) const;
  void PartByMeetings(std::vector<int>* model_of_part) const;
  bool OthersStayAway(const std::vector<int>& model_of_part) const;

  const Planned planned_;
  const std::vector<int>& part_of_replica_;
  const std::vector<int>& part_of_link_;
  std::vector<std::vector<int>> replicas_;    // [part]
  std::vector<std::vector<int>> sources_of_;  // [replica], its own
  std::vector<int> number_of_link_;
  // By source, of several replicas: its loads on links of parts, sorted.
  std::map<int, std::vector<LoadOfPart>> loads_;
  std::vector<int> stand_ins_;
  std::vector<bool> idle_links_;
};

}  // namespace pipewright
