// Traffic of one device with very many others at once, of which each carries a
// small part: a gather of odc over all nodes. If every such gather shared every
// link of every other device, whatever starts or ends would change the whole
// machine. So only the device's own links are shared exactly. On the others it
// is part of a pool: what all sources that do the same put there on average.
//
// How a pool and the rest slow each other is in fluid_links.h.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/engine/sharing.h"
#include "sim/topology/cluster.h"

namespace pipewright {

// Number of peers at which each carries a part that is small.
inline constexpr int kSpreadPeers = 32;

// What a source of a pool puts on a link, on average over all of them.
struct SpreadLoad {
  LinkId link = 0;
  double flows = 0;
  int32_t place = 0;
};

struct SpreadPool {
  double bytes_per_s = 0;  // for each flow, alone
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
  // From so many peers at once on only a device's own links are shared exactly.
  SpreadPlanner(const Cluster& cluster, int from_peers)
      : cluster_(cluster), from_peers_(from_peers) {}

  bool Spreads(size_t peers) const {
    return peers >= static_cast<size_t>(from_peers_);
  }

  // Sources of one pool pull alike, or push: those of a rank, over one part of
  // the replicas, with so many peers each.
  struct Key {
    bool pulls = false;
    int rank = 0;
    int part = 0;
    size_t peers = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // One flow from one device to another for each of `pairs`. Keeps what is not
  // spread as the source's own.
  TrafficSource Add(const Key& key,
                    const std::vector<std::pair<int, int>>& pairs);
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
  const int from_peers_;
  std::map<Key, int> pool_of_;
  std::vector<Building> building_;
};

}  // namespace pipewright
