// Copies and messages between two ends as a profile has them, on a cluster:
// their links get the latency and the bandwidth that were measured, and what a
// size takes beyond that line is added to what its links take. So a transfer
// that is alone takes what was measured, and others on its links still share
// them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/cost/profile_shape.h"
#include "sim/topology/cluster.h"

namespace pipewright {

// Where a path leads.
enum class PathEnds : uint8_t { kToHost, kToDevice, kInNode, kAcrossNodes };
inline constexpr int kNumPathEnds = 4;

// The line through the smallest and the largest size.
struct PathLine {
  double latency_s = 0;
  double bytes_per_s = 0;
};
PathLine LineOf(const TimesBySize& seconds);
// The first route with such ends; empty where there is none.
std::vector<LinkId> RouteWith(const Cluster& cluster, PathEnds ends);

// The links of a route that a measurement of such paths is of, and what the
// others of it take.
struct PathShare {
  int own = 0;
  double others_s = 0;
};
PathShare ShareOf(const Cluster& cluster, PathEnds ends);

class MeasuredPaths {
 public:
  // `seconds` of paths with such ends; not empty.
  void Add(PathEnds ends, TimesBySize seconds);
  // What a switch copies both ways at once, bytes a second of both directions
  // together. For clusters whose switches share a link for that.
  void ShareBothWays(double bytes_per_s) { both_ways_ = bytes_per_s; }
  // Sets the links of `cluster`. Times hold between its first device and its
  // host, the next device, the first device of another node; farther ones take
  // as much longer as their links do. Paths that the cluster has not are
  // dropped.
  void SetLinks(Cluster* cluster);

  bool empty() const;
  bool Has(PathEnds ends) const { return !PathOf(ends).seconds.empty(); }
  // As measured. Has(ends).
  PathLine LineOfPath(PathEnds ends) const {
    return LineOf(PathOf(ends).seconds);
  }
  // What `bytes` take beyond the links, seconds; may be below 0.
  double Beyond(PathEnds ends, double bytes) const;

 private:
  struct Path {
    TimesBySize seconds;
    PathLine route;  // what its links take
  };
  const Path& PathOf(PathEnds ends) const {
    return paths_[static_cast<int>(ends)];
  }

  std::array<Path, kNumPathEnds> paths_;
  double both_ways_ = 0;
};

}  // namespace pipewright
