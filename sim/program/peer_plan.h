// With whom a one-sided operation exchanges bytes, and in which order: the same
// for every data-parallel replica, counted from its own place. Knows no bytes
// and no times.
#pragma once

#include <vector>

namespace pipewright {

struct PeerPlan {
  // A replica of the same rank, seen from another one: so many nodes further,
  // and at a place so much further in its node, both counted around.
  struct Peer {
    int node = 0;
    int place = 0;
  };
  // What runs at once.
  struct Step {
    std::vector<Peer> peers;
    // With each of them by a flow of its own; else all flows keep pace.
    bool apart = false;
  };

  int node_size = 1;        // replicas of a node, next to each other
  int nodes = 0;            // that peers are in, next to each other; 0: all
  std::vector<Step> steps;  // one after the other

  // `replicas` is a multiple of node_size.
  int ReplicaOf(const Peer& peer, int replica, int replicas) const {
    const int counted = nodes > 0 ? nodes : replicas / node_size;
    const int own = replica / node_size;
    const int node = own / counted * counted + (own + peer.node) % counted;
    return node * node_size + (replica % node_size + peer.place) % node_size;
  }
};

}  // namespace pipewright
