// Which transfers can meet on which link, decided once before a run, so that
// only transfers that can contend pay for a solver.
#pragma once

#include <limits>
#include <vector>

#include "sim/topology/cluster.h"

namespace pipewright {

// Something that sends over the same links again and again, with all devices
// of its ranks at once: a channel of a replica, one direction of a rank's
// copies, the rings of a group; or the work of a host, whose bytes are those of
// its memory.
struct TrafficSource {
  FlowBundle flows;
  // Two of its own transfers can be under way at once.
  bool overlaps_itself = false;
  // Highest rate of each flow, whatever its links.
  double most_per_s = std::numeric_limits<double>::infinity();
  // True for a host's work: SimGrid's own network model knows neither limits
  // nor work that takes other bytes of a link than its own.
  bool of_host = false;
  // Sources of one owner never meet each other; below 0: it is its own.
  int owner = -1;
  // Data-parallel replica that sends; below 0: several do.
  int replica = -1;
  // What is not in `flows` is in this pool (spread.h); below 0: all is.
  int pool = -1;
};

enum class Sharing {
  kNone,   // no other transfer uses its links, or these have room for all that
           // do: a timer is exact
  kQueue,  // meets others on one link only, and that link is the narrowest of
           // all of them: a processor-sharing queue is exact
  kFlow,   // anything else: a flow for the solver
};

struct SourcePlan {
  Sharing sharing = Sharing::kNone;
  LinkId link = -1;        // for kQueue
  double flows = 0;        // for kQueue, on that link
  double latency_s = 0;    // on the longest route
  double bytes_per_s = 0;  // for each flow, alone
  // Links on which a kFlow can meet others. Its other links limit it no further
  // than bytes_per_s does.
  std::vector<LinkLoad> shared;
  int pool = -1;  // as TrafficSource's; then kFlow
};

// One plan a source. A source without links gets kNone and no time. On links in
// `pooled` a source meets more than the others of `sources`.
std::vector<SourcePlan> PlanSharing(const Cluster& cluster,
                                    const std::vector<TrafficSource>& sources,
                                    const std::vector<LinkId>& pooled = {});

}  // namespace pipewright
