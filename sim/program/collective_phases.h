// Collectives of a Program that are no rings over all members: double binary
// trees (Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth
// broadcast, reduction and scan", 2009; NCCL's all-reduce between nodes) and
// rings in two levels. As phases, each one bundle of flows at one rate:
// what passes data on step after step runs at the pace of its slowest edge.
// Rings over all members are network_time.h's.
//
// Bytes are those of the whole buffer, as in collective_time.h.
#pragma once

#include <vector>

#include "sim/cost/collective_time.h"
#include "sim/program/network.h"
#include "sim/program/network_time.h"

namespace pipewright {

// Phases of an all-reduce on a cluster. The nodes form two trees; the devices
// that a node has in the group are a chain whose head is in the trees. If every
// node has k of them, there are k such pairs of trees, each with other heads
// and 1/k of the buffer. A tree passes half of its part on in chunks: up, and
// down again at the same time. Empty if all members are on one node.
std::vector<CollectivePhase> TreePhases(const Network& network, double bytes,
                                        const std::vector<Member>& members);

// Phases of any collective that moves bytes. Empty if all members are on one
// node, or nodes have one each or different numbers of them.
std::vector<CollectivePhase> HierarchicalPhases(
    const Network& network, CollectiveKind kind, double bytes,
    const std::vector<Member>& members);

// One after the other, alone on the network.
double SecondsOf(const Cluster& cluster,
                 const std::vector<CollectivePhase>& phases);

// The parent of `node` in an in-order binary tree over 1 to `nodes`; 0: it is
// the root. In the other of two trees a node stands where it is a leaf of the
// one that it is not a leaf of, as far as there are enough of them.
int TreeParent(int node, int nodes);
int PlaceInSecondTree(int node, int nodes);

}  // namespace pipewright
