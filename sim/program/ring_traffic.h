// Rings of groups of devices, and what they put on the links of a cluster.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "sim/cost/collective_time.h"
#include "sim/topology/cluster.h"

namespace pipewright {

// What all rings of some groups put on the links.
struct RingTraffic {
  // Edges between two members at a time, of all groups at once.
  RingLinks links = {
      .edge_bytes_per_s = std::numeric_limits<double>::infinity(),
      .ring_bytes_per_s = std::numeric_limits<double>::infinity()};
  std::vector<LinkLoad> loads;
};

// The orders of the members on their rings. Devices of one node stand next to
// each other. Over several nodes there is a ring for each device that every
// node has in the group, and each ring leaves the nodes through other devices,
// so that it has network cards of its own.
std::vector<std::vector<int>> Rings(const Cluster& cluster,
                                    std::vector<int> devices);

// Traffic of groups of as many devices each, whose rings turn at once.
RingTraffic RingTrafficOf(const Cluster& cluster,
                          std::vector<std::vector<int>> groups);
// The same, computed once for what is asked again and again of a cluster:
// it depends on no bytes, and each stage of a rank has others.
std::shared_ptr<const RingTraffic> KnownRingTraffic(
    const std::shared_ptr<const Cluster>& cluster,
    std::vector<std::vector<int>> groups);

}  // namespace pipewright
