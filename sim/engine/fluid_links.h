// Links shared among flows as a fluid: every flow as fast as its links allow,
// the slowest first (max-min fairness), which is what SimGrid's own network
// model computes. It keeps no clock.
//
// Rates are right if each flow has its own rate, or is on a full link where
// nobody is faster: that link holds it. So what starts or ends is solved among
// those that it meets, with each of them held to the rate that it has; one that
// loses rate there, or the link that holds it, is opened and those that it
// meets are taken in. A ring over thousands of links is not looked at when
// somebody comes or goes on a link that does not hold it.
//
// A flow here is a bundle: so many equal flows on each link, at one rate. Bytes
// and rates are those of each of them. Work that is not a transfer is a flow
// too: its unit, a parameter of an optimizer, takes so many bytes of the link.
// Then the rates that are shared are those of each in its own unit.
//
// A pool (spread.h) is on its links so many flows as its sources that run would
// have there on average, each of which wants what it has alone. What it gets
// there slows the sources in turn: they visit the places of the pool one after
// the other, so that each counts by its part, and in a place its slowest link
// decides. Links and sources learn of a change when it is above a tolerance:
// with thousands of sources one more or less is not. Up to 64 sources each is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/engine/sharing.h"
#include "sim/engine/spread.h"
#include "sim/topology/cluster.h"

namespace pipewright {

class FluidLinks {
 public:
  // The plan of each source says how fast it is alone and where it can meet
  // others.
  FluidLinks(const Cluster& cluster, const std::vector<SourcePlan>& plans,
             const std::vector<SpreadPool>& pools = {});

  void Start(double now_s, int source, double bytes, uint32_t transfer);
  // When the next transfer ends if none starts before; infinite when there is
  // none. `now_s` is not before any date given so far.
  double NextEnd(double now_s);
  // Takes out a transfer that ends at `now_s`, rounding aside. False: there is
  // none. To be called after NextEnd.
  bool TakeEnded(double now_s, uint32_t* transfer);
  // Puts the flows that run into parts, which share no link; to be called after
  // NextEnd. Then the flows at hand are none, until a part is swapped in; what
  // starts then is of that part. Swapped again, the part is put back.
  template <class PartOf>
  void Split(int parts, PartOf part_of) {
    std::vector<std::vector<End>> ends(parts);
    std::sort(ends_.begin(), ends_.end(), [](const End& one, const End& other) {
      return one.IsBefore(other);
    });
    for (const End& end : ends_) {
      std::vector<End>& part = ends[part_of(flows_[end.flow].source)];
      flows_[end.flow].end = static_cast<uint32_t>(part.size());
      part.push_back(end);
    }
    ends_.clear();
    ends_of_parts_ = std::move(ends);
  }
  void Swap(int part) { std::swap(ends_, ends_of_parts_[part]); }
  // All flows are at hand again.
  void Merge();

  // Flows whose rates were looked at so far, again and again, and links that
  // one of them asked in search of another that holds it.
  int64_t visits() const { return visits_; }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr LinkId kNobody = -1;
  struct Flow {
    uint32_t source = 0;
    uint32_t transfer = 0;
    uint32_t seen = 0;     // by the solution of this number
    uint32_t solving = 0;  // its place in `flows_in_` when seen
    uint32_t end = kNone;  // its place in `ends_`
    LinkId held_by = kNobody;
    bool runs = false;
    double left = 0;  // bytes, at since_s
    double since_s = 0;
    double rate = 0;
    double alone = 0;  // its rate where nothing is in its way
    // Behind each other in `places_`: where it is in the lists of its links,
    // and where each load is in `binding_`, if at all. There are those of its
    // loads that are on links that bind.
    uint32_t first_place = 0;
    uint32_t places = 0;   // that it may use
    uint32_t in_pool = 0;  // its place among those of its pool that run
    uint32_t binding = 0;
    uint32_t asked = 0;  // of these, last, in search of a link that holds it
  };
  struct PlacesOfLoad {
    uint32_t user = 0;
    uint32_t binding = 0;
  };
  struct Binding {
    LinkId link;
    uint32_t load;  // which of the flow's
    double flows;
  };
  // Where a source can meet others: loads_[first] to loads_[last - 1].
  struct Source {
    uint32_t first = 0;
    uint32_t last = 0;
    double bytes_per_s = 0;
    int32_t pool = -1;
  };
  // What a pool puts on a link.
  struct Spread {
    uint32_t pool;
    LinkId link;
    uint32_t place;
    double flows;       // flows of a source that runs
    double slowed = 1;  // how much longer bytes take here than alone
  };
  struct SpreadPlace {
    double part = 0;
    double slowed = 1;  // where it is the most
    std::vector<uint32_t> spreads;
  };
  struct Pool {
    double bytes_per_s = 0;
    double tolerance = 0;  // for sources that run
    std::vector<SpreadPlace> places;
    std::vector<uint32_t> spreads;
    std::vector<uint32_t> running;  // flows
    double slowed = 1;
    // What links and sources have been told.
    double told_running = 0;
    double told_slowed = 1;
  };
  struct User {
    uint32_t flow;
    uint32_t place;  // of its load, in `places_`
  };
  // What each start and end looks at is one cache line.
  struct alignas(64) SharedLink {
    std::vector<User> users;
    double bytes_per_s = 0;
    double wanted_per_s = 0;  // by all users at full speed
    double used_per_s = 0;    // while it binds
    double spread_per_s = 0;  // wanted by pools, as they have been told
    bool binds = false;       // keeps somebody from full speed, perhaps
    bool is_full = false;     // by the last solution
    bool changed = false;
    uint32_t seen = 0;
    uint32_t index = 0;  // in `links_in_` when seen
    uint32_t first_spread = 0;
    uint32_t last_spread = 0;
    bool Binds() const;
  };
  struct End {
    double end_s;
    uint32_t flow;
    bool IsBefore(const End& other) const {
      return end_s != other.end_s ? end_s < other.end_s : flow < other.flow;
    }
  };
  // A flow of the part that is solved, and its loads there.
  struct Solving {
    uint32_t flow = 0;
    uint32_t load = kNone;  // the first; the others hang on it
    double most = 0;        // its rate where no link of the part is in its way
    double rate = 0;
    LinkId held_by = kNobody;
    uint32_t spread = kNone;  // then it is this one, and no flow
    bool open = true;         // else `most` is the rate that it has
  };
  // A link of the part that is solved, with those of its users that are too.
  struct Filling {
    LinkId link = 0;
    double all_flows = 0;
    double had = 0;  // bytes per second, before
    uint32_t users = 0;
    uint32_t spreads = 0;
    bool whole = false;  // all users are in
    // State of a filling.
    double left = 0;    // bytes per second
    double flows = 0;   // not fixed
    uint32_t open = 0;  // who they are of: a sum of parts may miss 0
    double share = 0;
    double fastest = 0;      // rate of its users
    bool narrowest = false;  // among all links of all its users
  };
  struct Load {
    uint32_t link;
    uint32_t next;  // of its flow
    double flows;
  };

  // Pools.
  void AddPools(const std::vector<SpreadPool>& pools);
  void EnterPool(uint32_t flow, Pool& pool);
  void LeavePool(const Flow& flow, Pool& pool);
  bool TellPools();
  void TellLinks(Pool& pool);
  double FlowsOf(const Spread& spread) const;
  void AddUp(LinkId link);
  void SetMet(uint32_t spread, double slowed);
  void SetSlowed(uint32_t spread, double slowed);
  void Settle(const SharedLink& link);
  void VisitSpreads(uint32_t filling);

  void Change(LinkId link);
  void SetBinding(LinkId link);
  void AddBinding(Flow* flow, LinkId link, uint32_t load, double flows);
  uint32_t LoadOf(const User& user) const {
    return user.place - flows_[user.flow].first_place;
  }
  double FlowsOf(const User& user) const {
    return loads_[sources_[flows_[user.flow].source].first + LoadOf(user)]
        .flows;
  }
  void Remove(uint32_t flow);
  void Solve(double now_s);
  void SolveChanged(double now_s);
  bool Widen();
  bool IsHeld(const Solving& solving);
  bool Holds(LinkId link, double rate) const;
  void OpenHeldBy(LinkId link);
  void Open(uint32_t flow);
  void Enter(uint32_t flow);
  void AddLoad(const Flow& flow, uint32_t filling, double flows);
  uint32_t Include(LinkId link);
  void TakeIn(LinkId link);
  void Fill();
  void SetRate(double now_s, uint32_t flow, double rate);
  // Steps on the heap of ends.
  void SetEnd(uint32_t flow, double end_s);
  void RemoveEnd(uint32_t flow);
  void Place(size_t place, const End& end);
  void Up(size_t place);
  void Down(size_t place);

  std::vector<Source> sources_;
  std::vector<LinkLoad> loads_;
  std::vector<PlacesOfLoad> places_;
  std::vector<Binding> binding_;
  std::vector<Flow> flows_;
  std::vector<uint32_t> free_;
  std::vector<SharedLink> links_;  // [link]
  std::vector<LinkId> changed_;
  std::vector<uint32_t> started_;
  std::vector<End> ends_;  // heap, the earliest first
  std::vector<std::vector<End>> ends_of_parts_;
  std::vector<Pool> pools_;
  std::vector<Spread> spreads_;  // by link
  int64_t visits_ = 0;
  uint32_t solution_ = 0;
  // State of a solution.
  std::vector<Solving> flows_in_;
  std::vector<Filling> links_in_;
  std::vector<Load> loads_in_;
  std::vector<LinkId> to_take_in_;
  bool holds_ = false;           // else all that is met is opened
  std::vector<LinkId> to_bind_;  // whose spreads have changed
  std::vector<uint32_t> open_;
};

}  // namespace pipewright
