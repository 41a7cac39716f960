// Which links the exchanges of groups of tensor, context and expert parallelism
// cross where the run stands on a cluster: what of them an estimate does not
// know by the rates of NVLink and network cards, and by how much slow links
// lengthen it.
#pragma once

#include <array>
#include <compare>
#include <vector>

#include "sim/cost/analytic.h"
#include "sim/program/network.h"

namespace pipewright {

// Links of one kind that the same bytes need so many times as long on, and what
// latencies become longer by. 1 and 0: none is slow.
struct SlowPath {
  double nvlink = 1;
  double card = 1;
  double ring = 1;  // between nodes beside cards, of a ring, and of all to all
  double pair = 1;
  double ring_latency_s = 0;
  double latency_s = 0;

  auto operator<=>(const SlowPath&) const = default;
};

// [CommGroup] of all groups of one rank of a replica: the slowest.
using SlowPaths = std::array<SlowPath, 3>;

// [CommGroup] members of a group; 1: there are no groups.
using GroupMembersOf = std::array<int, 3>;

// Paths of the groups that cross the most, while all groups of their kind
// exchange. Nothing if messages between nodes cross cards alone.
std::array<BetweenNodes, 3> PathsBetweenNodes(const Network& network,
                                              const GroupMembersOf& members);

// [link] Does a message of any group cross it?
std::vector<bool> LinksOfGroups(const Network& network,
                                const GroupMembersOf& members);

// [replica * pp + rank] `network` stands on a cluster whose links are those of
// `healthy`, but slower. Empty where no group crosses any that is.
std::vector<SlowPaths> SlowPathsOf(const Network& network,
                                   const Cluster& healthy,
                                   const GroupMembersOf& members);

// Gives a rank of all replicas the slowest of its paths.
void MakeReplicasAlike(int pp, std::vector<SlowPaths>* paths);

}  // namespace pipewright
