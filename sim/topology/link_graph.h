// Which switches a cluster has and which links join them, worked out from its
// routes: where a link follows another on a route, one ends where the other
// begins; and NAME/up and NAME/down are the two ways of one cable. For pictures
// and for checks that know nothing of a shape.
//
// It has the routes between nodes only: all of a node is one vertex, and what
// does not leave a node is left out. What the routes never tell apart (all
// spines that a trunk stands for) is one switch; switches that nothing crosses
// from one to the other are several.
#pragma once

#include <vector>

#include "sim/topology/cluster.h"

namespace pipewright {

struct LinkGraph {
  struct Edge {
    LinkId link = 0;
    int from = 0;  // vertex
    int to = 0;
  };
  int nodes = 0;            // vertices 0 to nodes-1; the others are switches
  int vertices = 0;         // switches in the order of their links
  std::vector<Edge> edges;  // in the order of links

  // Fewest links from each vertex to a node: 0 for nodes.
  std::vector<int> Heights() const;
};

// Time O(devices^2 * length of a route): for clusters that fit in a picture.
LinkGraph GraphOf(const Cluster& cluster);

// The most bytes per second that nodes with `side` can send to all others, over
// any ways at once (maximum flow, Edmonds and Karp 1972). `side` has an entry a
// node.
double CutBandwidth(const Cluster& cluster, const LinkGraph& graph,
                    const std::vector<bool>& side);

}  // namespace pipewright
