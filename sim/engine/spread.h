// Traffic of one device with very many others at once, of which each carries a
// small part: a gather of odc over all nodes. If every such gather shared every
// link of every other device, whatever starts or ends would change the whole
// machine. So only the device's own links are shared exactly. On the others it
// is part of a pool: what all sources that do the same put there on average.
//
// How a pool and the rest slow each other is in fluid_links.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/engine/sharing.h"
#include "sim/topology/cluster.h"

namespace pipewright {

// Of so many peers each carries a part that is small.
inline constexpr int kSpreadPeers = 32;

// What a source of a pool puts on a link, on average over all of them.
struct SpreadLoad {
  LinkId link = 0;
  double flows = 0;
  int32_t place = 0;
};

struct SpreadPool {
  double bytes_per_s = 0;  // of each flow, alone
  int sources = 0;
  std::vector<SpreadLoad> loads;
  // [place] A source visits places one after the other: the part of its flows
  // that go there. A place is the links of another node, or of a device of the
  // own one, or a link to several of them.
  std::vector<double> parts;
};

// Builds the pools of a run.
class SpreadPlanner {
 public:
  explicit SpreadPlanner(const Cluster& cluster) : cluster_(cluster) {}

  // A source of pool number `pool`, or of a new one where it is num_pools():
  // one flow from one device to another for each of `pairs`, the other one
  // being `to` or `from`. `peers` flows cross the busiest link of a device of
  // its own. Keeps what is not spread as the source's own.
  TrafficSource Add(int pool, const std::vector<std::pair<int, int>>& pairs,
                    bool from_others, size_t peers);
  int num_pools() const { return static_cast<int>(building_.size()); }
  std::vector<SpreadPool> Finish() const;

 private:
  static constexpr int32_t kNowhere = -1;
  static constexpr int32_t kSeveral = -2;
  struct Building {
    int sources = 0;
    double rate_sum = 0;
    double all_flows = 0;
    std::vector<double> flows;      // [link]
    std::vector<int32_t> place;     // [link] that its flows go to
    std::vector<double> to_places;  // [place] flows
  };

  int32_t PlaceOf(int from, int to, int other) const;

  const Cluster& cluster_;
  std::vector<Building> building_;
};

}  // namespace pipewright
