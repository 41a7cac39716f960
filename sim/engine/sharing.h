// Who can meet whom on which link, decided once before a run, so that only
// transfers that can contend pay for a solver.
#pragma once

#include <vector>

#include "sim/topology/cluster.h"

namespace pipewright {

// Something that sends over the same links again and again: a channel of a
// replica, one direction of a device's copies, an edge of a ring.
struct TrafficSource {
  std::vector<LinkId> links;
  // Two of its own transfers can be under way at once.
  bool overlaps_itself = false;
};

enum class Sharing {
  kNone,   // nobody else uses its links: a timer is exact
  kQueue,  // meets others on one link only, and that link is the narrowest of
           // all of them: a processor-sharing queue is exact
  kFlow,   // anything else: a flow for the solver
};

struct SourcePlan {
  Sharing sharing = Sharing::kNone;
  LinkId link = -1;        // of kQueue
  double latency_s = 0;    // of the whole route
  double bytes_per_s = 0;  // of its narrowest link
};

// One plan a source. A source without links gets kNone and no time.
std::vector<SourcePlan> PlanSharing(const Cluster& cluster,
                                    const std::vector<TrafficSource>& sources);

}  // namespace pipewright
